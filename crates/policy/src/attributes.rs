//! What policies see of a client: as entities, and as the key by which what was decided for one client is used for all
//! others between whom no policy makes a difference.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cedar_policy::{Entity, EntityId, EntityTypeName, EntityUid, RestrictedExpression};
use fanlight_canonical::CallContext;
use fanlight_identity::{Identity, Scopes};

use crate::expression::Reads;
use crate::rule::Rule;

/// The issuers of Fanlight itself have this in front.
const OWN: &str = "fanlight:";

/// The names of entities of a type.
pub(crate) fn uid(entity_type: &str, id: &str) -> Option<EntityUid> {
    let name: EntityTypeName = entity_type.parse().ok()?;
    Some(EntityUid::from_type_name_and_id(name, EntityId::new(id)))
}

/// Between what policies make a difference.
#[derive(Clone, Debug, Default)]
pub(crate) struct Differences {
    reads: Reads,
    users: BTreeSet<Box<str>>,
    groups: BTreeSet<Box<str>>,
}

/// What the policies see of a client.
#[derive(Clone, Debug)]
pub(crate) struct SeenClient {
    /// Equal for clients between whom no policy makes a difference.
    pub(crate) key: String,
    pub(crate) user: EntityUid,
    /// The client, with its groups.
    pub(crate) entity: Entity,
    /// The context of its requests, without arguments.
    pub(crate) context: Vec<(String, RestrictedExpression)>,
}

impl Differences {
    pub(crate) fn of(rules: &[Rule]) -> Self {
        let mut all = Self::default();
        for rule in rules {
            all.reads.and(&rule.reads);
            for literal in rule.policy.entity_literals() {
                let id = literal.id().unescaped().into();
                match literal.type_name().to_string().as_str() {
                    "User" => all.users.insert(id),
                    "Group" => all.groups.insert(id),
                    _ => continue,
                };
            }
        }
        all
    }

    fn reads(&self, attribute: &str) -> bool {
        self.reads.attributes.contains(attribute)
    }

    /// Whether anything depends on what servers say of their tools.
    pub(crate) fn reads_hints(&self) -> bool {
        self.reads.attributes.iter().any(|name| name.ends_with("Hint"))
    }

    /// What the policies see of the client of a request. `None` if that cannot be written in their language, which does not
    /// happen.
    pub(crate) fn seen(&self, request: &CallContext, identity: &Identity, endpoint: &str) -> Option<SeenClient> {
        let (issuer, subject) = identity.principal.issuer_and_subject().unwrap_or(("", "anonymous"));
        let issuer = issuer.strip_prefix(OWN).unwrap_or(issuer);
        let id = if issuer.is_empty() { subject.to_owned() } else { format!("{issuer}#{subject}") };
        let mut key = format!("{endpoint:?}");
        let mut differ = |is_read: bool, text: &dyn std::fmt::Debug| {
            if is_read {
                let _ = write!(key, " {text:?}");
            } else {
                key.push_str(" -");
            }
        };
        let groups: Vec<_> = identity.groups.iter().filter(|group| self.groups.contains(&***group)).collect();
        let (scopes, all_scopes) = match &identity.scopes {
            Scopes::All => (Vec::new(), true),
            Scopes::Only(scopes) => (scopes.iter().map(Arc::clone).collect(), false),
        };
        let source = identity.source.as_str();
        differ(self.users.contains(id.as_str()), &id);
        differ(true, &groups);
        differ(self.reads("issuer"), &issuer);
        differ(self.reads("subject"), &subject);
        // Items have names, too.
        differ(self.reads("name"), &identity.name);
        differ(self.reads("authentication"), &source);
        differ(self.reads("scopes") || self.reads("allScopes"), &(&scopes, all_scopes));
        differ(self.reads.claims, &identity.claims);
        let text = |text: &str| RestrictedExpression::new_string(text.to_owned());
        let texts = |all: &mut dyn Iterator<Item = &str>| RestrictedExpression::new_set(all.map(text));
        let attributes = [
            ("issuer", text(issuer)),
            ("subject", text(subject)),
            ("name", text(&identity.name)),
            ("authentication", text(source)),
            ("scopes", texts(&mut scopes.iter().map(|scope| &**scope))),
            ("allScopes", RestrictedExpression::new_bool(all_scopes)),
        ];
        let claims = identity.claims.iter().filter(|_| self.reads.claims);
        let tags = claims.map(|(name, values)| (name.to_string(), texts(&mut values.iter().map(|value| &**value))));
        let user = uid("User", &id)?;
        let attributes = attributes.map(|(name, value)| (name.to_owned(), value));
        let parents = groups.iter().filter_map(|group| uid("Group", group));
        let entity = Entity::new_with_tags(user.clone(), attributes, parents, tags).ok()?;

        let mut context = vec![("era".to_owned(), text(request.era.as_str()))];
        differ(self.reads("era"), &request.era);
        for (name, member) in [("clientName", "name"), ("clientVersion", "version")] {
            let info = request.client_info.as_ref().filter(|_| self.reads(name));
            let value = info.and_then(|info| Some(info.peek(member)?.as_str()?.into_owned()));
            differ(self.reads(name), &value);
            context.extend(value.map(|value| (name.to_owned(), text(&value))));
        }
        differ(self.reads("address"), &request.address);
        let address = request.address.map(|address| RestrictedExpression::new_ip(address.to_string()));
        context.extend(address.map(|address| ("address".to_owned(), address)));
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let minute = UNIX_EPOCH + Duration::from_secs(seconds - seconds % 60);
        let time = humantime::format_rfc3339_seconds(minute).to_string();
        differ(self.reads("time"), &time);
        context.push(("time".to_owned(), RestrictedExpression::new_datetime(time)));
        Some(SeenClient { key, user, entity, context })
    }
}

//! The attributes of a client that policies see: as entities, and as a key. Clients with equal keys
//! have equal rights, so they share decisions.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cedar_policy::{Entity, EntityId, EntityTypeName, EntityUid, RestrictedExpression};
use fanlight_canonical::CallContext;
use fanlight_canonical::identity::{Identity, Scopes};
use fanlight_protocol::epoch;

use crate::expression::Reads;
use crate::rule::Rule;

/// The longest client name or version that policies see, in bytes.
const LONGEST_INFO: usize = 256;

/// The subject and the id of all clients without authentication.
const ANONYMOUS: &str = "anonymous";

/// A text as a value.
pub(crate) fn text(text: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(text.to_owned())
}

/// The identifier of an entity of this type.
pub(crate) fn uid(entity_type: &str, id: &str) -> Option<EntityUid> {
    let name: EntityTypeName = entity_type.parse().ok()?;
    Some(EntityUid::from_type_name_and_id(name, EntityId::new(id)))
}

/// The attributes by which policies distinguish clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Differences {
    reads: Reads,
    users: BTreeSet<Box<str>>,
    groups: BTreeSet<Box<str>>,
}

/// A client as the policies see it.
#[derive(Clone, Debug)]
pub(crate) struct SeenClient {
    pub(crate) user: EntityUid,
    /// The client's groups that policies mention.
    pub(crate) groups: HashSet<EntityUid>,
    /// The client as an entity, with its groups.
    pub(crate) entity: Entity,
}

/// The context of a request without arguments.
pub(crate) type SeenContext = Vec<(String, RestrictedExpression)>;

/// Attributes of the context that differ from request to request, or that clients choose.
const CHANGING: [&str; 4] = ["clientName", "clientVersion", "address", "time"];

impl Differences {
    pub(crate) fn find(rules: &[Rule]) -> Self {
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

    pub(crate) fn reads(&self, attribute: &str) -> bool {
        self.reads.attributes.contains(attribute)
    }

    /// Whether any policy reads the hints of tools.
    pub(crate) fn reads_hints(&self) -> bool {
        self.reads.hints
    }

    /// Whether the policies treat requests of one client differently.
    pub(crate) fn reads_requests(&self) -> bool {
        reads_requests(&self.reads)
    }

    /// The key of a request's client. It is equal for clients that the policies treat alike in
    /// requests that are otherwise alike.
    pub(crate) fn key(&self, request: &CallContext, identity: &Identity, endpoint: &str) -> String {
        let mut key = format!("{endpoint:?}");
        let mut differ = |is_read: bool, text: &dyn Fn() -> String| {
            key.push(' ');
            if is_read {
                key.push_str(&text());
            }
        };
        let (issuer, subject) = names(identity);
        differ(!self.users.is_empty(), &|| {
            let id = id(identity);
            if self.users.contains(id.as_str()) {
                format!("{id:?}")
            } else {
                String::new()
            }
        });
        differ(!self.groups.is_empty(), &|| {
            format!("{:?}", self.groups_of(identity).collect::<Vec<_>>())
        });
        differ(self.reads("issuer"), &|| format!("{issuer:?}"));
        differ(self.reads("subject"), &|| format!("{subject:?}"));
        differ(self.reads("name"), &|| format!("{:?}", identity.name));
        differ(self.reads("authentication"), &|| {
            identity.source.as_str().to_owned()
        });
        differ(self.reads("scopes") || self.reads("allScopes"), &|| {
            format!("{:?}", identity.scopes)
        });
        differ(self.reads.claims, &|| format!("{:?}", identity.claims));
        differ(self.reads("era"), &|| request.era.as_str().to_owned());
        key
    }

    /// The client of a request as the policies see it. `None` if it cannot be expressed in Cedar,
    /// which does not happen.
    pub(crate) fn seen(&self, identity: &Identity) -> Option<SeenClient> {
        let texts =
            |all: &mut dyn Iterator<Item = &str>| RestrictedExpression::new_set(all.map(text));
        let (issuer, subject) = names(identity);
        let (scopes, all_scopes) = match &identity.scopes {
            Scopes::All => (Vec::new(), true),
            Scopes::Only(scopes) => (scopes.iter().map(Arc::clone).collect(), false),
        };
        let attributes = [
            ("issuer", text(issuer)),
            ("subject", text(subject)),
            ("name", text(&identity.name)),
            ("authentication", text(identity.source.as_str())),
            ("scopes", texts(&mut scopes.iter().map(|scope| &**scope))),
            ("allScopes", RestrictedExpression::new_bool(all_scopes)),
        ];
        let claims = identity.claims.iter().filter(|_| self.reads.claims);
        let tags = claims.map(|(name, values)| {
            (
                name.to_string(),
                texts(&mut values.iter().map(|value| &**value)),
            )
        });
        let user = uid("User", &id(identity))?;
        let attributes = attributes.map(|(name, value)| (name.to_owned(), value));
        let groups: HashSet<_> = self
            .groups_of(identity)
            .filter_map(|group| uid("Group", group))
            .collect();
        let entity = Entity::new_with_tags(user.clone(), attributes, groups.clone(), tags).ok()?;
        Some(SeenClient {
            user,
            groups,
            entity,
        })
    }

    /// The context of a request as the policies see it.
    pub(crate) fn context(&self, request: &CallContext) -> SeenContext {
        let mut context = vec![("era".to_owned(), text(request.era.as_str()))];
        for (name, member) in INFO {
            let value = info(request, member).filter(|_| self.reads(name));
            context.extend(value.map(|value| (name.to_owned(), text(&value))));
        }
        let address = request
            .address
            .map(|address| RestrictedExpression::new_ip(address.to_string()));
        context.extend(address.map(|address| ("address".to_owned(), address)));
        let time = humantime::format_rfc3339_seconds(this_minute()).to_string();
        context.push(("time".to_owned(), RestrictedExpression::new_datetime(time)));
        context
    }

    /// The client's groups that policies mention.
    fn groups_of<'a>(&'a self, identity: &'a Identity) -> impl Iterator<Item = &'a Arc<str>> {
        identity
            .groups
            .iter()
            .filter(|group| self.groups.contains(&***group))
    }
}

/// Whether a policy that reads this treats requests of one client differently.
pub(crate) fn reads_requests(reads: &Reads) -> bool {
    CHANGING.iter().any(|name| reads.attributes.contains(*name))
}

/// The client's statements about itself: their names in policies, and the members of `clientInfo`.
const INFO: [(&str, &str); 2] = [("clientName", "name"), ("clientVersion", "version")];

/// A member of `clientInfo`, as the client wrote it. An overlong text counts as missing.
fn info(request: &CallContext, member: &str) -> Option<String> {
    let text = request.client_info.as_ref()?.peek(member)?.as_str()?;
    (text.len() <= LONGEST_INFO).then(|| text.into_owned())
}

/// The issuer and the subject of a client.
fn names(identity: &Identity) -> (&str, &str) {
    identity
        .principal
        .issuer_and_subject()
        .unwrap_or(("", ANONYMOUS))
}

/// The id of a client as a user.
fn id(identity: &Identity) -> String {
    identity
        .principal
        .id()
        .unwrap_or_else(|| ANONYMOUS.to_owned())
}

/// The current time, rounded down to the minute, which is the resolution for policies.
fn this_minute() -> SystemTime {
    let seconds = epoch::seconds();
    UNIX_EPOCH + Duration::from_secs(seconds - seconds % 60)
}

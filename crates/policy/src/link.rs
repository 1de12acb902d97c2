//! Links, which make policies of templates. They have the format of Cedar's own command line.

use std::collections::HashMap;

use cedar_policy::{EntityUid, pst};
use fanlight_protocol::Json;
use fanlight_protocol::json::Kind;

use crate::source::{self, InvalidPolicy, PolicyText};

/// The deepest nesting in a file of links.
const NESTING: usize = 8;

/// A policy to be made from a template.
#[derive(Debug)]
pub(crate) struct Link {
    /// The line where the link begins, from 1.
    pub(crate) line: usize,
    /// The id of the template.
    pub(crate) template: String,
    /// The id of the policy.
    pub(crate) id: String,
    /// The values for `?principal` and `?resource`.
    pub(crate) values: HashMap<pst::SlotId, pst::EntityUID>,
}

/// Parses the links in a text.
///
/// # Errors
///
/// The first fault.
pub(crate) fn links(source: &PolicyText) -> Result<Vec<Link>, InvalidPolicy> {
    let text = source.text.trim();
    let before = source.text.len() - source.text.trim_start().len();
    let invalid = |at: usize, message: String| {
        let line = source::line(&source.text, before + at);
        InvalidPolicy {
            file: source.name.clone(),
            line,
            message,
        }
    };
    let all = Json::parse(text.to_owned().into(), NESTING)
        .map_err(|error| invalid(0, error.to_string()))?;
    if all.kind() != Kind::Array {
        return Err(invalid(
            0,
            "a file of links is a list: [{\"template_id\": …, \"link_id\": …, \"args\": {…}}]"
                .to_owned(),
        ));
    }
    let read = |place: std::ops::Range<usize>| {
        let line = source::line(&source.text, before + place.start);
        link(&all.slice(place.clone()), line).map_err(|message| invalid(place.start, message))
    };
    all.elements().map(read).collect()
}

fn link(object: &Json, line: usize) -> Result<Link, String> {
    let mut link = Link {
        line,
        template: String::new(),
        id: String::new(),
        values: HashMap::new(),
    };
    for member in object.members() {
        let (name, value) = (
            member.name(object).unwrap_or_default(),
            object.slice(member.value),
        );
        let text = || {
            value
                .as_str()
                .map(|text| text.into_owned())
                .ok_or(format!("{name:?} must be a text"))
        };
        match name.as_str() {
            "template_id" => link.template = text()?,
            "link_id" => link.id = text()?,
            "args" => link.values = values(&value)?,
            _ => {
                return Err(format!(
                    "a link has no {name:?}; it has \"template_id\", \"link_id\" and \"args\""
                ));
            }
        }
    }
    if link.template.is_empty() || link.id.is_empty() {
        Err("a link needs \"template_id\", the id of its template, and \"link_id\", an id of its own".to_owned())
    } else {
        Ok(link)
    }
}

/// The value for each slot.
fn values(object: &Json) -> Result<HashMap<pst::SlotId, pst::EntityUID>, String> {
    let value = |member: fanlight_protocol::json::Member| {
        let name = member.name(object).unwrap_or_default();
        let slot = match name.as_str() {
            "?principal" => pst::SlotId::Principal,
            "?resource" => pst::SlotId::Resource,
            _ => {
                return Err(format!(
                    "{name:?} is neither \"?principal\" nor \"?resource\""
                ));
            }
        };
        let value = object.slice(member.value);
        let text = value.as_str().ok_or(format!(
            "{name} must be a text such as \"Group::\\\"dev\\\"\""
        ))?;
        let entity: EntityUid = text.parse().map_err(|error| format!("{name}: {error}"))?;
        let entity_type = pst::Name::unqualified(entity.type_name().to_string())
            .map_err(|error| error.to_string())?;
        let ty = pst::EntityType::from_name(entity_type);
        Ok((
            slot,
            pst::EntityUID {
                ty,
                eid: entity.id().unescaped().into(),
            },
        ))
    };
    object.members().map(value).collect()
}

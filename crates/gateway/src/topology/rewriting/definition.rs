//! Rewrites the definition of a tool for clients.

use bytes::Bytes;
use fanlight_canonical::Rewritten;
use fanlight_protocol::json::{Edits, Json, Kind, Member, MemberChange, ObjectBuilder, quote};
use fanlight_protocol::member_name::confusable;

use super::ToolRewriting;
use super::arguments::{Argument, Arguments};

/// A member of a tool's definition that the configuration can replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionMember {
    /// `title`
    Title,
    /// `description`
    Description,
    /// `annotations`
    Annotations,
}

impl DefinitionMember {
    /// The member's name.
    pub fn key(self) -> &'static str {
        match self {
            Self::Title => "title",
            Self::Description => "description",
            Self::Annotations => "annotations",
        }
    }

    pub(super) fn rewritten(self) -> Rewritten {
        match self {
            Self::Title => Rewritten::TITLE,
            Self::Description => Rewritten::DESCRIPTION,
            Self::Annotations => Rewritten::ANNOTATIONS,
        }
    }
}

impl ToolRewriting {
    /// The definition `tool` as clients see it. A member that occurs twice is changed twice,
    /// because readers differ in which one counts.
    pub(crate) fn definition(&self, tool: &Json) -> Json {
        let mut edits = Edits::new(tool.bytes().clone());
        let members: Vec<_> = tool.members().collect();
        let changes = members
            .iter()
            .map(|member| self.change(tool, member))
            .collect();
        let mut added = ObjectBuilder::new();
        for (key, value) in &self.members {
            if let Some(value) = value
                && !members.iter().any(|member| member.is(tool, key.key()))
            {
                added.member(key.key(), value);
            }
        }
        edits.change_members(0, &members, changes, added.finish().inner_text());
        if !self.arguments.is_empty() {
            for schema in members
                .iter()
                .filter(|member| member.is(tool, "inputSchema"))
            {
                self.arguments.edit_schema(
                    &mut edits,
                    schema.value.start,
                    &tool.slice(schema.value.clone()),
                );
            }
        }
        edits.finish_json()
    }

    fn change(&self, tool: &Json, member: &Member) -> MemberChange {
        let named = self
            .members
            .iter()
            .find(|(key, _)| member.is(tool, key.key()));
        match named {
            // Readers that ignore case would take it for the member of the configuration.
            None if self.is_taken_for_one(tool, member) => MemberChange::Remove,
            None => MemberChange::Keep,
            Some((_, None)) => MemberChange::Remove,
            Some((_, Some(value))) => MemberChange::Replace(value.bytes().clone()),
        }
    }
}

impl ToolRewriting {
    /// Whether a reader could take a member for one that the configuration replaces.
    fn is_taken_for_one(&self, tool: &Json, member: &Member) -> bool {
        let key = tool.bytes().get(member.key.clone()).unwrap_or_default();
        let raw = key.get(1..key.len().saturating_sub(1)).unwrap_or_default();
        let keys: Vec<_> = self.members.iter().map(|(key, _)| key.key()).collect();
        confusable(raw, &keys).is_some()
    }
}

impl Arguments {
    /// Edits the input schema that begins at `start`. Arguments that clients may not send are
    /// removed from `properties` and `required`. An argument with a default is not required.
    fn edit_schema(&self, edits: &mut Edits, start: usize, schema: &Json) {
        let members: Vec<_> = schema.members().collect();
        let changes = members.iter().map(|member| {
            let value = || schema.slice(member.value.clone());
            let goes = member.is(schema, "required") && self.requires_nothing_else(&value());
            if goes {
                MemberChange::Remove
            } else {
                MemberChange::Keep
            }
        });
        let changes: Vec<_> = changes.collect();
        for (member, change) in members.iter().zip(&changes) {
            let (at, value) = (
                start + member.value.start,
                schema.slice(member.value.clone()),
            );
            if member.is(schema, "properties") {
                self.edit_properties(edits, at, &value);
            } else if member.is(schema, "required") && *change == MemberChange::Keep {
                let optional: Vec<_> = value.items().map(|name| self.is_optional(&name)).collect();
                edits.remove_elements(at, &value, |index| optional.get(index) == Some(&true));
            }
        }
        edits.change_members(start, &members, changes, b"");
    }

    fn edit_properties(&self, edits: &mut Edits, start: usize, properties: &Json) {
        let members: Vec<_> = properties.members().collect();
        let changes: Vec<_> = members
            .iter()
            .map(|member| self.change_property(properties, member))
            .collect();
        for (member, change) in members.iter().zip(&changes) {
            let default = self.find(properties, member).and_then(Argument::default);
            if let (MemberChange::Keep, Some(default)) = (change, default) {
                let (at, property) = (
                    start + member.value.start,
                    properties.slice(member.value.clone()),
                );
                set_default(edits, at, &property, default);
            }
        }
        edits.change_members(start, &members, changes, b"");
    }

    fn change_property(&self, properties: &Json, member: &Member) -> MemberChange {
        let Some(argument) = self.find(properties, member) else {
            return MemberChange::Keep;
        };
        match argument.default() {
            None => MemberChange::Remove,
            // The schema `true` accepts everything, and so does one that has only a default.
            Some(default)
                if properties
                    .value_at(member.value.clone())
                    .is_some_and(|schema| schema.is_true()) =>
            {
                let schema = ObjectBuilder::new().member("default", default).finish();
                MemberChange::Replace(schema.into_bytes())
            }
            Some(_) => MemberChange::Keep,
        }
    }

    fn find(&self, object: &Json, member: &Member) -> Option<&Argument> {
        self.all
            .iter()
            .find(|argument| member.is(object, argument.name()))
    }

    /// Whether clients need not send the argument of this name, which is a JSON string.
    fn is_optional(&self, name: &Json) -> bool {
        name.kind() == Kind::String && self.all.iter().any(|argument| name.is_str(argument.name()))
    }

    /// Whether a list of required arguments becomes empty, which JSON Schema allows only since
    /// draft 6.
    fn requires_nothing_else(&self, required: &Json) -> bool {
        let mut names = required.items().peekable();
        names.peek().is_some() && names.all(|name| self.is_optional(&name))
    }
}

/// Sets `default` in the property's schema that begins at `start`. Leaves `false` and invalid
/// schemas unchanged.
fn set_default(edits: &mut Edits, start: usize, property: &Json, default: &Json) {
    if !property.is_object() {
        return;
    }
    let members: Vec<_> = property.members().collect();
    let is_default = |member: &Member| member.is(property, "default");
    let changes = members.iter().map(|member| {
        if is_default(member) {
            MemberChange::Replace(default.bytes().clone())
        } else {
            MemberChange::Keep
        }
    });
    let changes: Vec<_> = changes.collect();
    let added = if members.iter().any(is_default) {
        Bytes::new()
    } else {
        [&quote("default"), b":".as_slice(), default.bytes()]
            .concat()
            .into()
    };
    edits.change_members(start, &members, changes, &added);
}

#[cfg(test)]
mod tests {
    use super::super::{ArgumentRule, Rewriting, ToolRewritings};
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(Bytes::copy_from_slice(text.as_bytes()), 64).unwrap()
    }

    fn defined(
        members: &[(DefinitionMember, Option<&'static str>)],
        rules: &[(&str, ArgumentRule)],
        tool: &str,
    ) -> String {
        let members = members
            .iter()
            .map(|(member, value)| (*member, value.map(Json::literal)))
            .collect();
        let rules = rules
            .iter()
            .map(|(name, rule)| ((*name).to_owned(), rule.clone()))
            .collect();
        let rewriting = Rewriting {
            definitions: vec![("t".to_owned(), members)],
            arguments: vec![("t".to_owned(), rules)],
            ..Rewriting::default()
        };
        let tools = ToolRewritings::new(&rewriting);
        tools
            .find("t")
            .unwrap()
            .definition(&json(tool))
            .as_text()
            .to_owned()
    }

    #[test]
    fn members_of_a_definition_are_replaced_removed_and_added() {
        use DefinitionMember::*;
        let tool =
            "{ \"name\":\"t\",\n \"description\" : \"old\",\"x\": 1.0, \"annotations\":{\"a\":1} }";
        assert_eq!(
            defined(
                &[
                    (Description, Some("\"new\"")),
                    (Title, Some("\"T\"")),
                    (Annotations, None)
                ],
                &[],
                tool
            ),
            "{ \"name\":\"t\",\n \"description\" : \"new\",\"x\": 1.0,\"title\":\"T\" }"
        );
        let twice = r#"{"description":"a","descriptio\u006e":"b"}"#;
        assert_eq!(
            defined(&[(Description, Some("\"new\""))], &[], twice),
            r#"{"description":"new","descriptio\u006e":"new"}"#
        );
        assert_eq!(
            defined(&[(Title, Some("\"T\""))], &[], "{}"),
            r#"{"title":"T"}"#
        );
        // Members that a reader could take for it go, and no others.
        let alike = r#"{"Description":"old","DESCRIPT\u0131ON":"old","descriptions":1,"Title":2}"#;
        assert_eq!(
            defined(&[(Description, Some("\"new\""))], &[], alike),
            r#"{"descriptions":1,"Title":2,"description":"new"}"#
        );
    }

    #[test]
    fn arguments_leave_the_schema_or_get_a_default() {
        let value = || ArgumentRule::Value(Json::literal("\"acme\""));
        let default = || ArgumentRule::Default(Json::literal("10"));
        let tool = r#"{"inputSchema":{"type":"object", "properties":{ "owner":{"type":"string","x-mcp-header":"O"}, "limit":{"type":"integer"} , "debug":true,"q":{"default":1.0}},"required":["owner" , "q","limit"], "x":1}}"#;
        assert_eq!(
            defined(
                &[],
                &[
                    ("owner", value()),
                    ("limit", default()),
                    ("debug", ArgumentRule::Hidden)
                ],
                tool
            ),
            r#"{"inputSchema":{"type":"object", "properties":{ "limit":{"type":"integer","default":10},"q":{"default":1.0}},"required":[ "q"], "x":1}}"#
        );
        let all = [
            ("owner", value()),
            ("limit", default()),
            ("q", default()),
            ("debug", default()),
            ("none", value()),
        ];
        assert_eq!(
            defined(&[], &all, tool),
            r#"{"inputSchema":{"type":"object", "properties":{ "limit":{"type":"integer","default":10} , "debug":{"default":10},"q":{"default":10}}, "x":1}}"#
        );
    }

    #[test]
    fn arguments_are_found_in_every_spelling_and_repetition() {
        let hidden = [("owner", ArgumentRule::Hidden)];
        let tool = r#"{"inputSchema":{"properties":{"\u006fwner":1,"owner":2},"properties":{"owner":3},"required":["\u006fwner",1],"required":["owner"]},"inputSchem\u0061":{"properties":{"owner":{}}}}"#;
        assert_eq!(
            defined(&[], &hidden, tool),
            r#"{"inputSchema":{"properties":{},"properties":{},"required":[1]},"inputSchem\u0061":{"properties":{}}}"#
        );
    }

    #[test]
    fn schemas_of_another_form_stay() {
        let rules = [
            ("owner", ArgumentRule::Hidden),
            ("d", ArgumentRule::Default(Json::null())),
        ];
        for tool in [
            r#"{"inputSchema":true}"#,
            r#"{"inputSchema":{"properties":[],"required":{}}}"#,
            r#"{"inputSchema":{"properties":{"d":false},"required":[]}}"#,
            r#"{"outputSchema":{"properties":{"owner":{}},"required":["owner"]}}"#,
            r#"{"inputSchema":{"anyOf":[{"required":["owner"]}]}}"#,
            "7",
        ] {
            assert_eq!(defined(&[], &rules, tool), tool);
        }
    }
}

//! Capabilities that a client declares, and those that a server's request to the client needs.
//!
//! An object declares a capability. Any other value, even `null`, declares nothing.
//!
//! Source: 2025-11-25 and 2026-07-28 client/elicitation, client/sampling, client/roots,
//! Capabilities and Error Handling.

use crate::json::{Json, ObjectBuilder, Value};
use crate::meta::TASKS_EXTENSION;
use crate::{Method, RpcError, code};

/// The member of `data` that lists missing capabilities in an error (2026-07-28 basic/index, Error
/// Codes).
const REQUIRED: &str = "requiredCapabilities";

/// All capabilities that a client can declare in 2026-07-28. A server may list some entries only
/// for clients that can be asked for input, or that show apps (MCP Apps 2026-01-26, Client<>Server
/// Capability Negotiation).
pub const ALL_OF_MODERN: &str = r#"{"roots":{},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]},"io.modelcontextprotocol/skills":{}}}"#;
/// All capabilities that a client can declare in 2025-11-25.
pub const ALL_OF_LEGACY: &str = r#"{"roots":{},"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"tasks":{"list":{},"cancel":{},"requests":{"sampling":{"createMessage":{}},"elicitation":{"create":{}}}},"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]},"io.modelcontextprotocol/skills":{}}}"#;

/// A client capability that a server's request can need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClientCapability {
    /// Elicitation by a form. `elicitation` without a mode also declares it.
    ElicitationByForm,
    /// `elicitation.url`
    ElicitationByUrl,
    /// Elicitation in an unknown mode, which nothing can declare.
    ElicitationByOther,
    /// `sampling`
    Sampling,
    /// `sampling.tools`
    SamplingWithTools,
    /// `roots`
    Roots,
    /// The extension `io.modelcontextprotocol/tasks`.
    Tasks,
}

impl ClientCapability {
    /// The capability that a server's request needs; `None` for an unknown method.
    pub fn for_request(method: &Method, params: Option<&Json>) -> Option<Self> {
        let param = |name: &str| params.and_then(|params| params.get(name));
        match method {
            Method::Elicit => Some(match param("mode") {
                None => Self::ElicitationByForm,
                Some(mode) => match mode.as_str().as_deref() {
                    Some("form") => Self::ElicitationByForm,
                    Some("url") => Self::ElicitationByUrl,
                    _ => Self::ElicitationByOther,
                },
            }),
            // 2025-11-25 schema, `CreateMessageRequestParams`.
            Method::CreateMessage => Some(match param("tools").or_else(|| param("toolChoice")) {
                Some(_) => Self::SamplingWithTools,
                None => Self::Sampling,
            }),
            Method::ListRoots => Some(Self::Roots),
            _ => None,
        }
    }

    /// Whether `capabilities` declare this capability.
    #[must_use]
    pub fn is_declared_in(self, capabilities: &Json) -> bool {
        let Some(declared) = self.parent_in(capabilities) else {
            return false;
        };
        let has = |part: &str| object(&declared, part).is_some();
        match self {
            // "An empty capabilities object is equivalent to declaring support for form mode only."
            Self::ElicitationByForm => has("form") || !has("url"),
            Self::ElicitationByUrl => has("url"),
            Self::ElicitationByOther => false,
            Self::SamplingWithTools => has("tools"),
            Self::Tasks => has(TASKS_EXTENSION),
            Self::Sampling | Self::Roots => true,
        }
    }

    /// The member of `ClientCapabilities` that declares this capability, alone or together with
    /// [`Self::part`].
    fn member(self) -> &'static str {
        match self {
            Self::ElicitationByForm | Self::ElicitationByUrl | Self::ElicitationByOther => {
                "elicitation"
            }
            Self::Sampling | Self::SamplingWithTools => "sampling",
            Self::Roots => "roots",
            Self::Tasks => "extensions",
        }
    }

    /// The part of [`Self::member`] that declares this capability; `None` if the member alone
    /// declares it.
    fn part(self) -> Option<&'static str> {
        match self {
            Self::ElicitationByForm => Some("form"),
            Self::ElicitationByUrl => Some("url"),
            Self::SamplingWithTools => Some("tools"),
            Self::Tasks => Some(TASKS_EXTENSION),
            Self::ElicitationByOther | Self::Sampling | Self::Roots => None,
        }
    }

    fn parent_in(self, capabilities: &Json) -> Option<Json> {
        object(capabilities, self.member())
    }
}

/// A needed capability that a client has not declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MissingCapability {
    /// The missing capability.
    pub capability: ClientCapability,
    /// Whether the client has declared the capability but not its needed part.
    in_part: bool,
}

impl MissingCapability {
    /// The capability that a server's request needs and `capabilities` lack, if any. An unknown
    /// method needs none, because the client decides about it.
    pub fn for_server_request(
        capabilities: &Json,
        method: &Method,
        params: Option<&Json>,
    ) -> Option<Self> {
        Self::check(capabilities, ClientCapability::for_request(method, params)?)
    }

    /// Checks one capability; `None` if it is declared.
    pub fn check(capabilities: &Json, capability: ClientCapability) -> Option<Self> {
        let missing = Self {
            capability,
            in_part: capability.parent_in(capabilities).is_some(),
        };
        (!capability.is_declared_in(capabilities)).then_some(missing)
    }

    /// The error for a legacy server that needs it.
    ///
    /// "Server sends an `elicitation/create` request with a mode not declared in client
    /// capabilities: -32602" (2025-11-25 client/elicitation, Error Handling); the same for tools.
    /// "client does not support roots: -32601" (client/roots); the same for the others.
    #[must_use]
    pub fn to_error(self) -> RpcError {
        let code = if self.in_part {
            code::INVALID_PARAMS
        } else {
            code::METHOD_NOT_FOUND
        };
        let member = self.capability.member();
        let message = match self.capability.part() {
            Some(part) if self.in_part => {
                format!("the client has not declared the capability \"{member}.{part}\"")
            }
            None if self.in_part => {
                "the client has not declared this mode of elicitation".to_owned()
            }
            _ => format!("the client has not declared the capability {member:?}"),
        };
        RpcError::new(code, message)
    }
}

/// Whether a server may send its own requests to a client with these capabilities.
pub fn can_be_asked(capabilities: &Json) -> bool {
    use ClientCapability::{ElicitationByForm, Roots, Sampling};
    // In one pass, because each call checks this.
    capabilities.members().any(|member| {
        capabilities
            .value_at(member.value.clone())
            .is_some_and(Value::is_object)
            && [ElicitationByForm, Sampling, Roots]
                .iter()
                .any(|kind| member.is(capabilities, kind.member()))
    })
}

/// Whether these capabilities of a client or a server declare the extension for tasks.
pub fn has_tasks_extension(capabilities: &Json) -> bool {
    ClientCapability::Tasks.is_declared_in(capabilities)
}

/// The error for a client that lacks capabilities (2026-07-28 basic/index, Error Codes). `None` if
/// none of them can be declared. `more` are further members of `data`.
pub fn missing_capability_error(
    missing: &[MissingCapability],
    more: &[(&str, Json)],
) -> Option<RpcError> {
    let required = required_capabilities(missing)?;
    let error = RpcError::new(
        code::MISSING_CLIENT_CAPABILITY,
        "Missing required client capability",
    );
    let error = error.with(REQUIRED, &required);
    Some(
        more.iter()
            .fold(error, |error, (key, value)| error.with(key, value)),
    )
}

/// The `ClientCapabilities` object that declares exactly these; `None` if none can be declared.
pub fn required_capabilities(missing: &[MissingCapability]) -> Option<Json> {
    let mut all = ObjectBuilder::new();
    for member in ["elicitation", "sampling", "roots", "extensions"] {
        let of_member: Vec<MissingCapability> = missing
            .iter()
            .copied()
            .filter(|missing| missing.capability.member() == member)
            .collect();
        if of_member
            .iter()
            .any(|missing| missing.capability != ClientCapability::ElicitationByOther)
        {
            all.member(member, &required_parts(&of_member));
        }
    }
    (!all.is_empty()).then(|| all.finish())
}

fn required_parts(missing: &[MissingCapability]) -> Json {
    // `elicitation` without modes declares forms.
    let names_modes = missing
        .iter()
        .any(|missing| missing.in_part || missing.capability == ClientCapability::ElicitationByUrl);
    let mut needs: Vec<ClientCapability> =
        missing.iter().map(|missing| missing.capability).collect();
    needs.sort_unstable();
    needs.dedup();
    let mut parts = ObjectBuilder::new();
    for need in needs {
        match need.part() {
            Some(part) if need != ClientCapability::ElicitationByForm || names_modes => {
                parts.member(part, &Json::empty_object());
            }
            _ => {}
        }
    }
    parts.finish()
}

fn object(of: &Json, name: &str) -> Option<Json> {
    of.get(name).filter(Json::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(
        capabilities: &'static str,
        method: &str,
        params: &'static str,
    ) -> Option<MissingCapability> {
        let (capabilities, params) = (Json::literal(capabilities), Json::literal(params));
        MissingCapability::for_server_request(
            &capabilities,
            &Method::from_name(method),
            Some(&params),
        )
    }

    #[test]
    fn server_request_needs_a_declared_capability() {
        let (no_method, no_mode) = (Some(code::METHOD_NOT_FOUND), Some(code::INVALID_PARAMS));
        for (capabilities, method, params, expected) in [
            ("{}", "elicitation/create", "{}", no_method),
            ("{}", "elicitation/create", r#"{"mode":"odd"}"#, no_method),
            (
                r#"{"elicitation":null}"#,
                "elicitation/create",
                "{}",
                no_method,
            ),
            (r#"{"elicitation":{}}"#, "elicitation/create", "{}", None),
            (
                r#"{"elicitation":{}}"#,
                "elicitation/create",
                r#"{"mode":"form"}"#,
                None,
            ),
            (
                r#"{"elicitation":{}}"#,
                "elicitation/create",
                r#"{"mode":"url"}"#,
                no_mode,
            ),
            (
                r#"{"elicitation":{"url":null}}"#,
                "elicitation/create",
                r#"{"mode":"url"}"#,
                no_mode,
            ),
            (
                r#"{"elicitation":{"url":null}}"#,
                "elicitation/create",
                "{}",
                None,
            ),
            (
                r#"{"elicitation":{"url":{}}}"#,
                "elicitation/create",
                r#"{"mode":"url"}"#,
                None,
            ),
            (
                r#"{"elicitation":{"url":{}}}"#,
                "elicitation/create",
                "{}",
                no_mode,
            ),
            (
                r#"{"elicitation":{"form":{}}}"#,
                "elicitation/create",
                r#"{"mode":"url"}"#,
                no_mode,
            ),
            (
                r#"{"elicitation":{"form":{},"url":{}}}"#,
                "elicitation/create",
                "{}",
                None,
            ),
            (
                r#"{"elicitation":{"form":{},"url":{}}}"#,
                "elicitation/create",
                r#"{"mode":7}"#,
                no_mode,
            ),
            (
                r#"{"elicitation":{"odd":{}}}"#,
                "elicitation/create",
                r#"{"mode":"odd"}"#,
                no_mode,
            ),
            ("{}", "sampling/createMessage", "{}", no_method),
            (r#"{"sampling":{}}"#, "sampling/createMessage", "{}", None),
            (
                r#"{"sampling":{}}"#,
                "sampling/createMessage",
                r#"{"tools":[]}"#,
                no_mode,
            ),
            (
                r#"{"sampling":{}}"#,
                "sampling/createMessage",
                r#"{"toolChoice":{}}"#,
                no_mode,
            ),
            (
                r#"{"sampling":{"tools":{}}}"#,
                "sampling/createMessage",
                r#"{"tools":[]}"#,
                None,
            ),
            ("{}", "roots/list", "{}", no_method),
            (r#"{"roots":true}"#, "roots/list", "{}", no_method),
            (
                r#"{"roots":{"listChanged":true}}"#,
                "roots/list",
                "{}",
                None,
            ),
            ("{}", "x/y", "{}", None),
        ] {
            let refused =
                missing(capabilities, method, params).map(|missing| missing.to_error().code);
            assert_eq!(refused, expected, "{capabilities} {method} {params}");
        }
    }

    #[test]
    fn missing_capability_error_names_what_to_declare() {
        let url = r#"{"mode":"url"}"#;
        let none = |method, params| missing("{}", method, params).unwrap();
        let (form, by_url) = (
            none("elicitation/create", "{}"),
            none("elicitation/create", url),
        );
        let form_too =
            missing(r#"{"elicitation":{"url":{}}}"#, "elicitation/create", "{}").unwrap();
        let odd = none("elicitation/create", r#"{"mode":"odd"}"#);
        let (sampling, tools) = (
            none("sampling/createMessage", "{}"),
            none("sampling/createMessage", r#"{"tools":[]}"#),
        );
        let (roots, tasks) = (
            none("roots/list", "{}"),
            MissingCapability::check(&Json::empty_object(), ClientCapability::Tasks).unwrap(),
        );
        let cases: [(&[MissingCapability], &str); 10] = [
            (&[form], r#"{"elicitation":{}}"#),
            (&[by_url], r#"{"elicitation":{"url":{}}}"#),
            (
                &[by_url, form, form],
                r#"{"elicitation":{"form":{},"url":{}}}"#,
            ),
            (&[form_too], r#"{"elicitation":{"form":{}}}"#),
            (&[odd, form], r#"{"elicitation":{}}"#),
            (&[sampling], r#"{"sampling":{}}"#),
            (&[sampling, tools], r#"{"sampling":{"tools":{}}}"#),
            (&[roots, form], r#"{"elicitation":{},"roots":{}}"#),
            (
                &[tasks],
                r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
            ),
            (&[odd, roots], r#"{"roots":{}}"#),
        ];
        for (missing, required) in cases {
            let error = missing_capability_error(missing, &[("x", Json::literal("1.0"))]).unwrap();
            assert_eq!(error.code, code::MISSING_CLIENT_CAPABILITY);
            assert_eq!(
                error.data.unwrap().as_text(),
                format!(r#"{{"requiredCapabilities":{required},"x":1.0}}"#)
            );
        }
        assert_eq!(missing_capability_error(&[odd], &[]), None);
        assert_eq!(missing_capability_error(&[], &[]), None);
    }

    #[test]
    fn client_can_be_asked_if_it_declares_any_capability_for_that() {
        for capabilities in [
            r#"{"elicitation":{}}"#,
            r#"{"x":1,"sampling":{}}"#,
            r#"{"r\u006fots":{"listChanged":true}}"#,
        ] {
            assert!(can_be_asked(&Json::literal(capabilities)), "{capabilities}");
        }
        for capabilities in [
            "{}",
            "[]",
            r#"{"roots":null}"#,
            r#"{"sampling":true}"#,
            r#"{"x":{"roots":{}}}"#,
        ] {
            assert!(
                !can_be_asked(&Json::literal(capabilities)),
                "{capabilities}"
            );
        }
    }

    #[test]
    fn tasks_extension_is_declared_by_an_object() {
        let has = |text| has_tasks_extension(&Json::literal(text));
        assert!(has(
            r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#
        ));
        for no in [
            "{}",
            r#"{"extensions":null}"#,
            r#"{"extensions":{"io.modelcontextprotocol/tasks":true}}"#,
        ] {
            assert!(!has(no), "{no}");
        }
    }
}

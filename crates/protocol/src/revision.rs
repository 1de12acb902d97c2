//! Protocol revisions. Each is a row of rules, and code that reads or writes messages asks a rule
//! by its name.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use crate::capability::{ALL_OF_LEGACY, ALL_OF_MODERN};
use crate::error::code;
use crate::method::{ELICITATION_COMPLETE, Method};

crate::named! {
    /// The dialect of messages, which has a module at each edge (2026-07-28 basic/versioning,
    /// Terminology).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Era {
        /// `initialize` and sessions: 2025-11-25 and earlier.
        Legacy = "legacy",
        /// Stateless, with per-request metadata: 2026-07-28 and later.
        Modern = "modern",
    }
}

/// How a server asks a call's client for input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Questions {
    /// The server sends requests while the call runs.
    Requests,
    /// The server answers with `input_required`, and the client repeats the call (2026-07-28
    /// basic/patterns/mrtr).
    InputRequired,
}

/// The two dialects of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskDialect {
    /// The requestor asks for a task (2025-11-25 basic/utilities/tasks).
    Requested,
    /// The server decides (extension `io.modelcontextprotocol/tasks`).
    Extension,
}

/// A header that repeats a member of `params`.
#[derive(Clone, Copy, Debug)]
pub struct MirroredMember {
    /// The header's name in lower case.
    pub header: &'static str,
    /// The header's name in error messages.
    pub shown: &'static str,
    /// The methods whose requests have the header, each with the member.
    pub members: &'static [(&'static str, &'static str)],
}

impl MirroredMember {
    /// The member that the header repeats in requests of `method`.
    pub fn find(&self, method: &str) -> Option<&'static str> {
        find_value(self.members, method)
    }
}

/// A member that results must have.
#[derive(Clone, Copy, Debug)]
pub struct ResultMember {
    /// The member's name.
    pub name: &'static str,
    /// The member for results that lack it, as text.
    pub default: &'static str,
    /// Whether only complete results that can be cached have it.
    pub of_cacheable: bool,
}

/// The rules in which one revision differs from others.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The revision's name on the wire.
    pub name: &'static str,
    /// The dialect of its messages.
    pub era: Era,
    /// Whether `initialize` opens a session, which has the client's description, its log level and
    /// the messages outside of calls. Otherwise each request describes its client.
    pub has_sessions: bool,
    /// Whether several messages may be sent as one array.
    pub batches: bool,
    /// Whether sessions have event ids, so that streams can be resumed.
    pub resumes_streams: bool,
    /// Whether streams may have events without data, and may end before the response, to be
    /// resumed.
    pub pauses_streams: bool,
    /// Whether `MCP-Protocol-Version` names the revision in all messages of a session.
    pub version_header: bool,
    /// The headers that repeat parts of each request, besides its revision and method; `None` if
    /// headers repeat nothing.
    pub mirrored: Option<&'static [MirroredMember]>,
    /// Whether closing the stream of an HTTP request cancels the request.
    pub cancels_by_closing: bool,
    /// The HTTP status of responses with these error codes; 200 with others.
    pub statuses: &'static [(i64, u16)],
    /// How servers ask clients.
    pub questions: Questions,
    /// The dialect of tasks; `None` if there are none.
    pub tasks: Option<TaskDialect>,
    /// Requests that the revision calls differently than [`Method`]: the usual name, then the own.
    pub renamed: &'static [(&'static str, &'static str)],
    /// Requests of other revisions that this one does not have.
    pub lacks_requests: &'static [&'static str],
    /// Notifications of other revisions that this one does not have.
    pub lacks_notifications: &'static [&'static str],
    /// All capabilities that a client can declare.
    pub capabilities: &'static str,
    /// Harmless requests that every server should answer, the cheapest first.
    pub harmless: &'static [Method],
    /// The members that results must have.
    pub result_members: &'static [ResultMember],
    /// Whether each result names its server in `_meta`.
    pub results_name_server: bool,
    /// Whether `structuredContent` may be any JSON value, and not only an object.
    pub structures_any_value: bool,
    /// Whether content may have links to resources (2025-06-18 server/tools, Resource Links).
    pub links_resources: bool,
    /// Error codes that must not be sent, each with its replacement.
    pub replaced_codes: &'static [(i64, i64)],
}

impl Rules {
    /// Whether the revision may have this request. Unknown ones pass.
    pub fn has_request(&self, method: &Method) -> bool {
        !self.lacks_requests.contains(&method.as_str())
    }

    /// Whether the revision may have this notification. Unknown ones pass.
    pub fn has_notification(&self, method: &Method) -> bool {
        !self.lacks_notifications.contains(&method.as_str())
    }

    /// The revision's name for a known method.
    pub fn name_of(&self, method: &Method) -> Option<&'static str> {
        let known = method.known_name()?;
        Some(find_value(self.renamed, known).unwrap_or(known))
    }

    /// The method that this revision calls `name`, if other revisions call it differently.
    pub fn renamed_method(&self, name: &str) -> Option<Method> {
        let (known, _) = self.renamed.iter().find(|(_, own)| *own == name)?;
        Some(Method::from_name(known))
    }

    /// The code to send for an error with `code`.
    pub fn code(&self, code: i64) -> i64 {
        find_value(self.replaced_codes, code).unwrap_or(code)
    }

    /// The HTTP status of a response with this error, if it is one.
    pub fn status(&self, error: Option<i64>) -> u16 {
        error
            .and_then(|code| find_value(self.statuses, code))
            .unwrap_or(200)
    }
}

/// The value for `key` in a list of pairs.
fn find_value<K: PartialEq, V: Copy>(pairs: &[(K, V)], key: K) -> Option<V> {
    let pair = pairs.iter().find(|(known, _)| *known == key)?;
    Some(pair.1)
}

/// A revision: a reference to its rules.
#[derive(Clone, Copy, Debug)]
pub struct Revision(pub &'static Rules);

impl Revision {
    /// 2024-11-05
    pub const V2024_11_05: Self = Self(&Rules {
        name: "2024-11-05",
        era: Era::Legacy,
        has_sessions: true,
        batches: false,
        resumes_streams: false,
        pauses_streams: false,
        version_header: false,
        mirrored: None,
        cancels_by_closing: false,
        statuses: &[],
        questions: Questions::Requests,
        tasks: None,
        renamed: &[],
        lacks_requests: &["tasks/update", "subscriptions/listen"],
        lacks_notifications: &[
            "notifications/subscriptions/acknowledged",
            "notifications/tasks",
        ],
        // 2025-11-25 has most. Earlier servers ignore what they do not know.
        capabilities: ALL_OF_LEGACY,
        // Some servers have no `ping`.
        harmless: &[Method::Ping, Method::ListTools],
        result_members: &[],
        results_name_server: false,
        structures_any_value: false,
        links_resources: false,
        replaced_codes: &[],
    });

    /// 2025-03-26
    const V2025_03_26: Self = Self(&Rules {
        name: "2025-03-26",
        batches: true,
        resumes_streams: true,
        ..*Self::V2024_11_05.0
    });

    /// 2025-06-18
    pub const V2025_06_18: Self = Self(&Rules {
        name: "2025-06-18",
        batches: false,
        version_header: true,
        links_resources: true,
        ..*Self::V2025_03_26.0
    });

    /// 2025-11-25
    pub const V2025_11_25: Self = Self(&Rules {
        name: "2025-11-25",
        pauses_streams: true,
        tasks: Some(TaskDialect::Requested),
        ..*Self::V2025_06_18.0
    });

    /// 2026-07-28
    pub const V2026_07_28: Self = Self(&Rules {
        name: "2026-07-28",
        era: Era::Modern,
        has_sessions: false,
        // streamable-http, Standard Request Headers; the tasks extension, Routing Headers
        mirrored: Some(&[MirroredMember {
            header: "mcp-name",
            shown: "Mcp-Name",
            members: &[
                ("tools/call", "name"),
                ("prompts/get", "name"),
                ("resources/read", "uri"),
                ("tasks/get", "taskId"),
                ("tasks/update", "taskId"),
                ("tasks/cancel", "taskId"),
            ],
        }]),
        // streamable-http, Cancellation
        cancels_by_closing: true,
        // streamable-http, Protocol Version Header and Server Validation; basic/index, Per-request
        // protocol fields
        statuses: &[
            (code::METHOD_NOT_FOUND, 404),
            (code::HEADER_MISMATCH, 400),
            (code::MISSING_CLIENT_CAPABILITY, 400),
            (code::UNSUPPORTED_PROTOCOL_VERSION, 400),
        ],
        questions: Questions::InputRequired,
        tasks: Some(TaskDialect::Extension),
        // changelog, Major changes 1 to 5; the tasks extension
        lacks_requests: &[
            "initialize",
            "ping",
            "logging/setLevel",
            "resources/subscribe",
            "resources/unsubscribe",
            "tasks/result",
            "tasks/list",
        ],
        lacks_notifications: &["notifications/tasks/status", ELICITATION_COMPLETE],
        capabilities: ALL_OF_MODERN,
        harmless: &[Method::Discover],
        // basic/index, ResultType; server/utilities/caching. The defaults say that a result is stale at
        // once and private.
        result_members: &[
            ResultMember {
                name: "resultType",
                default: r#""resultType":"complete""#,
                of_cacheable: false,
            },
            ResultMember {
                name: "ttlMs",
                default: r#""ttlMs":0"#,
                of_cacheable: true,
            },
            ResultMember {
                name: "cacheScope",
                default: r#""cacheScope":"private""#,
                of_cacheable: true,
            },
        ],
        // basic/index, Per-response protocol fields
        results_name_server: true,
        structures_any_value: true,
        links_resources: true,
        // "Implementations of this protocol version MUST NOT emit" these (basic/index, Error Codes).
        // -32042 has no replacement in MCP.
        replaced_codes: &[
            (code::RESOURCE_NOT_FOUND, code::INVALID_PARAMS),
            (code::URL_ELICITATION_REQUIRED, code::URLS_NOT_VISITED),
        ],
        ..*Self::V2024_11_05.0
    });

    /// Every revision, newest first.
    pub const ALL: [Self; 5] = [
        Self::V2026_07_28,
        Self::V2025_11_25,
        Self::V2025_06_18,
        Self::V2025_03_26,
        Self::V2024_11_05,
    ];
    /// The newest revision with sessions.
    pub const NEWEST_LEGACY: Self = Self::V2025_11_25;
    /// The newest revision without sessions.
    pub const NEWEST_MODERN: Self = Self::V2026_07_28;

    /// The revision called `name`, if Fanlight speaks it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.name == name)
    }
}

impl Deref for Revision {
    type Target = Rules;

    fn deref(&self) -> &Rules {
        self.0
    }
}

impl PartialEq for Revision {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Revision {}

impl Hash for Revision {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_name_known_methods_and_are_sorted() {
        assert!(Revision::ALL.is_sorted_by(|newer, older| newer.name > older.name));
        for rules in Revision::ALL {
            let mirrored = rules.mirrored.unwrap_or_default();
            let of_headers = mirrored.iter().flat_map(|it| it.members).map(|(it, _)| it);
            let renamed = rules.renamed.iter().map(|(it, _)| it);
            let lacked = rules.lacks_requests.iter().chain(rules.lacks_notifications);
            for name in of_headers.chain(renamed).chain(lacked) {
                let is_known = Method::KNOWN.contains(name) || *name == ELICITATION_COMPLETE;
                assert!(is_known, "{name} in {}", rules.name);
            }
        }
    }

    #[test]
    fn mirrored_name_is_known_for_methods_that_have_one() {
        let [name] = Revision::V2026_07_28.mirrored.unwrap() else {
            panic!("one header")
        };
        for (method, member) in [
            ("tools/call", Some("name")),
            ("prompts/get", Some("name")),
            ("resources/read", Some("uri")),
            ("tasks/get", Some("taskId")),
            ("tasks/update", Some("taskId")),
            ("tasks/cancel", Some("taskId")),
            ("tasks/result", None),
            ("tools/list", None),
        ] {
            assert_eq!(name.find(method), member, "{method}");
            assert_eq!(Method::from_name(method).subject_member(), member);
        }
    }
}

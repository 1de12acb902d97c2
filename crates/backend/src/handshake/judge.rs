//! Interprets a server's answer to a probe or to `initialize`.

use std::time::Duration;

use fanlight_protocol::{Json, Response, Revision, code};

use crate::log::{excerpt, foreign_text};
use crate::settings::EraChoice;
use fanlight_canonical::BackendError;

/// The number of characters of the server's own message to show.
const SHOWN: usize = 200;

/// The outcome of `server/discover`.
#[derive(Debug)]
pub(super) enum ProbeReply {
    Answer(Response),
    /// An HTTP error status without an answer to the probe.
    Rejected {
        status: u16,
        error: Option<Json>,
        pause: Option<Duration>,
    },
    /// No answer in time.
    Silent {
        after: Duration,
    },
    /// The process ended.
    Exited(BackendError),
    /// A reply that is not an answer.
    Unreadable(BackendError),
    /// The server is unreachable, or credentials are missing. Neither shows the era of the server.
    Unreachable(BackendError),
}

/// The next step after the probe.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The server is modern and described itself.
    Modern {
        revision: Revision,
        description: Json,
    },
    /// The server is modern and lists this revision.
    Retry(Revision),
    /// The server needs `initialize`, with this revision.
    Legacy(Revision),
}

/// The reason why a handshake failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The failure may mean that the server has the other era.
    Era(BackendError),
    /// The status may also come from a server with the legacy SSE transport.
    NotHere(BackendError),
    /// The handshake failed for any other reason.
    Other(BackendError),
}

/// Judges the reply to a probe; `retried` for the second probe, with a revision that the server
/// listed.
pub(super) fn judge_probe(
    reply: ProbeReply,
    choice: EraChoice,
    retried: bool,
) -> Result<Verdict, BackendError> {
    let not_modern = match reply {
        ProbeReply::Unreachable(error) => return Err(error),
        ProbeReply::Answer(response) => match (response.result(), response.error()) {
            (Some(result), _) => match result
                .get("supportedVersions")
                .map(|versions| names(&versions))
            {
                Some(offered) => return judge_discovery(&offered, result, choice),
                None => invalid("the result of server/discover has no \"supportedVersions\""),
            },
            (None, error) => {
                let error = error.unwrap_or_default();
                if let Some(verdict) = judge_modern_error(&error, choice, retried) {
                    return verdict;
                }
                invalid(format!("it refuses server/discover: {}", in_words(&error)))
            }
        },
        ProbeReply::Rejected {
            status,
            error,
            pause,
        } => {
            if let Some(verdict) = error
                .as_ref()
                .and_then(|error| judge_modern_error(error, choice, retried))
            {
                return verdict;
            }
            Refusal::from_status(status, error.as_ref(), pause).into_error()
        }
        ProbeReply::Silent { after } => BackendError::Timeout { after, sent: false },
        ProbeReply::Exited(error) | ProbeReply::Unreadable(error) => error,
    };
    match choice {
        EraChoice::Modern => Err(not_modern),
        EraChoice::Auto | EraChoice::Legacy => Ok(Verdict::Legacy(Revision::NEWEST_LEGACY)),
    }
}

fn judge_discovery(
    offered: &[String],
    description: Json,
    choice: EraChoice,
) -> Result<Verdict, BackendError> {
    match newest(offered, false) {
        Some(revision) => Ok(Verdict::Modern {
            revision,
            description,
        }),
        None => legacy_or_nothing(offered, choice),
    }
}

/// Judges an error that only modern servers give; `None` for any other error.
fn judge_modern_error(
    error: &Json,
    choice: EraChoice,
    retried: bool,
) -> Option<Result<Verdict, BackendError>> {
    let found = error.get("code")?.as_i64()?;
    let modern = [
        code::HEADER_MISMATCH,
        code::MISSING_CLIENT_CAPABILITY,
        code::UNSUPPORTED_PROTOCOL_VERSION,
    ]
    .contains(&found);
    if !modern {
        return None;
    }
    let supported = error
        .get("data")
        .and_then(|data| data.get("supported"))
        .map(|supported| names(&supported));
    Some(match supported {
        Some(offered) => match newest(&offered, false) {
            // Retry even with the revision that it has just refused: the list counts (versioning,
            // Protocol Version Negotiation). A second refusal is final.
            Some(revision) if !retried => Ok(Verdict::Retry(revision)),
            Some(_) => Err(invalid(format!(
                "it refuses server/discover: {}",
                in_words(error)
            ))),
            None => legacy_or_nothing(&offered, choice),
        },
        // The server is modern, so `initialize` would be useless.
        None => Err(invalid(format!(
            "it refuses server/discover: {}",
            in_words(error)
        ))),
    })
}

fn legacy_or_nothing(offered: &[String], choice: EraChoice) -> Result<Verdict, BackendError> {
    match newest(offered, true) {
        Some(revision) if choice != EraChoice::Modern => Ok(Verdict::Legacy(revision)),
        _ => Err(no_common_revision(&offered.join(", "))),
    }
}

/// Judges the answer to `initialize`.
pub(super) fn judge_initialize(response: &Response) -> Result<(Revision, Json), Refusal> {
    let Some(result) = response.result() else {
        let error = response.body();
        let supported = error.get("data").and_then(|data| data.get("supported"));
        return Err(Refusal::Era(match supported {
            Some(supported) => no_common_revision(&names(&supported).join(", ")),
            None => invalid(format!("it refuses initialize: {}", in_words(&error))),
        }));
    };
    let Some(version) = result.get("protocolVersion") else {
        return Err(Refusal::Era(invalid(
            "the result of initialize has no \"protocolVersion\"",
        )));
    };
    let version = version.as_str().unwrap_or_default();
    match Revision::from_name(&version).filter(|revision| revision.has_sessions) {
        Some(revision) => Ok((revision, result)),
        None => Err(Refusal::Other(no_common_revision(&version))),
    }
}

impl Refusal {
    pub(super) fn into_error(self) -> BackendError {
        match self {
            Self::Era(error) | Self::NotHere(error) | Self::Other(error) => error,
        }
    }

    pub(super) fn from_status(status: u16, error: Option<&Json>, pause: Option<Duration>) -> Self {
        match (status, error) {
            (401 | 403, _) => Self::Other(BackendError::Unauthorized { status }),
            // 2025-11-25 basic/transports, Backwards Compatibility.
            (400 | 404 | 405, None) => Self::NotHere(BackendError::Status { status }),
            (400 | 404 | 405, Some(error)) => Self::NotHere(refused_error(status, error)),
            (_, Some(error)) => Self::Era(refused_error(status, error)),
            (500.., None) => Self::Other(BackendError::from_status(status, pause)),
            (429, None) => Self::Other(BackendError::from_status(status, pause)),
            (_, None) => Self::Era(BackendError::Status { status }),
        }
    }

    pub(super) fn from_transport(error: BackendError) -> Self {
        match error {
            BackendError::Malformed { .. } => Self::Era(error),
            other => Self::Other(other),
        }
    }
}

fn refused_error(status: u16, error: &Json) -> BackendError {
    invalid(format!("HTTP {status}: {}", in_words(error)))
}

/// The newest offered revision with or without sessions.
fn newest(offered: &[String], has_sessions: bool) -> Option<Revision> {
    Revision::ALL.into_iter().find(|known| {
        known.has_sessions == has_sessions && offered.iter().any(|name| name == known.name)
    })
}

fn names(array: &Json) -> Vec<String> {
    array
        .items()
        .filter_map(|element| element.to_str())
        .collect()
}

fn in_words(error: &Json) -> String {
    let message = error.text_at("message").unwrap_or_default();
    let code = error
        .get("code")
        .map_or_else(|| "no code".to_owned(), |code| excerpt(code.bytes(), 32));
    format!("{} ({code})", foreign_text(message.as_bytes(), SHOWN))
}

fn invalid(reason: impl Into<String>) -> BackendError {
    BackendError::InvalidHandshake {
        reason: reason.into(),
    }
}

fn no_common_revision(offered: &str) -> BackendError {
    BackendError::NoCommonRevision {
        offered: foreign_text(offered.as_bytes(), SHOWN),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fanlight_protocol::Message;

    use super::*;

    fn response(body: &str) -> Response {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,{body}}}"#);
        match Message::parse(Bytes::from(text), 64) {
            Ok(Message::Response(response)) => response,
            other => panic!("{other:?}"),
        }
    }

    fn probe(body: &str) -> Result<Verdict, BackendError> {
        judge_probe(ProbeReply::Answer(response(body)), EraChoice::Auto, false)
    }

    fn versions(list: &str) -> String {
        format!(r#""result":{{"supportedVersions":{list},"capabilities":{{}}}}"#)
    }

    #[test]
    fn a_discovery_with_a_modern_revision_is_modern() {
        for list in [
            r#"["2026-07-28"]"#,
            r#"["2025-11-25","9999-01-01","2026-07-28"]"#,
        ] {
            let Ok(Verdict::Modern {
                revision,
                description,
            }) = probe(&versions(list))
            else {
                panic!("{list}")
            };
            assert_eq!(revision, Revision::V2026_07_28);
            assert!(description.get("capabilities").is_some());
        }
    }

    #[test]
    fn a_server_that_offers_legacy_revisions_only_gets_initialize() {
        let legacy = Ok(Verdict::Legacy(Revision::V2025_06_18));
        assert_eq!(probe(&versions(r#"["2025-03-26","2025-06-18"]"#)), legacy);
        let error = r#""error":{"code":-32022,"message":"m","data":{"supported":["2025-06-18"]}}"#;
        assert_eq!(probe(error), legacy);
        let modern_only = judge_probe(
            ProbeReply::Answer(response(error)),
            EraChoice::Modern,
            false,
        );
        assert_eq!(
            modern_only,
            Err(BackendError::NoCommonRevision {
                offered: "2025-06-18".into()
            })
        );
    }

    #[test]
    fn nothing_in_common_is_said_so() {
        let nothing = Err(BackendError::NoCommonRevision {
            offered: "1999-01-01, 2030-01-01".into(),
        });
        assert_eq!(probe(&versions(r#"["1999-01-01","2030-01-01"]"#)), nothing);
        let error = r#""error":{"code":-32022,"message":"m","data":{"supported":["1999-01-01","2030-01-01"]}}"#;
        assert_eq!(probe(error), nothing);
    }

    #[test]
    fn modern_errors_never_lead_to_initialize() {
        for error in [
            r#""error":{"code":-32020,"message":"m"}"#,
            r#""error":{"code":-32021,"message":"m","data":{"requiredCapabilities":{}}}"#,
            r#""error":{"code":-32022,"message":"m"}"#,
        ] {
            assert!(
                matches!(probe(error), Err(BackendError::InvalidHandshake { .. })),
                "{error}"
            );
            let rejected = ProbeReply::Rejected {
                status: 400,
                error: response(error).error(),
                pause: None,
            };
            assert!(matches!(
                judge_probe(rejected, EraChoice::Auto, false),
                Err(BackendError::InvalidHandshake { .. })
            ));
        }
    }

    #[test]
    fn a_listed_revision_is_tried_once_more() {
        let error = r#""error":{"code":-32022,"message":"m","data":{"supported":["2026-07-28"]}}"#;
        assert_eq!(probe(error), Ok(Verdict::Retry(Revision::V2026_07_28)));
        let again = judge_probe(ProbeReply::Answer(response(error)), EraChoice::Auto, true);
        assert!(
            matches!(again, Err(BackendError::InvalidHandshake { .. })),
            "{again:?}"
        );
    }

    #[test]
    fn anything_else_is_legacy() {
        let legacy = || Ok(Verdict::Legacy(Revision::V2025_11_25));
        for body in [
            r#""error":{"code":-32601,"message":"m"}"#,
            r#""error":{"code":-32602,"message":"m"}"#,
            r#""error":{"code":"-32022","message":"m"}"#,
            r#""error":{}"#,
            r#""result":{}"#,
        ] {
            assert_eq!(probe(body), legacy(), "{body}");
        }
        let silent = || ProbeReply::Silent {
            after: Duration::from_secs(3),
        };
        let exited = || ProbeReply::Exited(BackendError::Exited { status: None });
        for reply in [
            silent(),
            exited(),
            ProbeReply::Unreadable(BackendError::ClosedEarly),
            ProbeReply::Rejected {
                status: 401,
                error: None,
                pause: None,
            },
            ProbeReply::Rejected {
                status: 404,
                error: Some(Json::literal(r#"{"code":-32000,"message":"m"}"#)),
                pause: None,
            },
            ProbeReply::Rejected {
                status: 503,
                error: None,
                pause: None,
            },
        ] {
            assert_eq!(judge_probe(reply, EraChoice::Auto, false), legacy());
        }
        for reply in [
            silent(),
            exited(),
            ProbeReply::Rejected {
                status: 401,
                error: None,
                pause: None,
            },
        ] {
            assert!(judge_probe(reply, EraChoice::Modern, false).is_err());
        }
    }

    #[test]
    fn an_unreachable_server_has_no_era() {
        let error = BackendError::Unreachable { reason: "r".into() };
        assert_eq!(
            judge_probe(
                ProbeReply::Unreachable(error.clone()),
                EraChoice::Auto,
                false
            ),
            Err(error)
        );
    }

    #[test]
    fn initialize_accepts_every_legacy_revision_and_no_other() {
        for name in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
            let body = format!(r#""result":{{"protocolVersion":"{name}"}}"#);
            assert_eq!(judge_initialize(&response(&body)).unwrap().0.name, name);
        }
        for name in ["2026-07-28", "2023-01-01", ""] {
            let body = format!(r#""result":{{"protocolVersion":"{name}"}}"#);
            let nothing = Refusal::Other(BackendError::NoCommonRevision {
                offered: name.into(),
            });
            assert_eq!(judge_initialize(&response(&body)).unwrap_err(), nothing);
        }
        assert!(matches!(
            judge_initialize(&response(r#""result":{}"#)),
            Err(Refusal::Era(_))
        ));
        let refused = judge_initialize(&response(
            r#""error":{"code":-32022,"message":"m","data":{"supported":["2026-07-28"]}}"#,
        ));
        assert_eq!(
            refused,
            Err(Refusal::Era(BackendError::NoCommonRevision {
                offered: "2026-07-28".into()
            }))
        );
        let refused = judge_initialize(&response(
            r#""error":{"code":-1,"message":"go\u001baway, token=s3cret"}"#,
        ))
        .unwrap_err();
        assert_eq!(
            refused.into_error().to_string(),
            "sent no valid answer: it refuses initialize: go\\u001baway, token=[redacted] (-1)"
        );
    }
}

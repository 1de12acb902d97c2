//! Content that arrives changed or missing: one request for each of a fixed set of legal and
//! unusual messages, and a check of one part of the received messages.

mod cases;

use std::net::SocketAddr;

use serde::Serialize;
use serde_json::Value;

use super::client::{Ask, Client, Transcript};
use super::raw;
use crate::access::Access;
use crate::era::Era;
use crate::error::{BenchError, Result};
use cases::{CASES, Case, Look};

/// The outcome for one part of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Preserved,
    /// The changed text.
    Changed(String),
    Missing,
    /// The reason of a missing answer.
    Failed(String),
}

/// One case and its outcome.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    pub(super) case: &'static str,
    pub(super) verdict: Verdict,
}

/// The longest stored text of a finding.
const LONGEST: usize = 200;

/// All findings of a client of `era` at `address`, behind which is the unusual server.
pub(super) async fn examine(
    address: SocketAddr,
    access: &Access,
    era: Era,
) -> Result<Vec<Finding>> {
    let mut client = Client::open(address, access, era).await?;
    if era == Era::Legacy {
        let ask = Ask {
            method: "logging/setLevel",
            name: None,
            params: r#""level":"debug""#,
            meta: "",
            id: "3",
        };
        // The cases detect a gateway without logging.
        let _ = client.ask(ask).await;
    }
    let mut findings = Vec::new();
    for case in CASES.iter().filter(|case| case.eras.contains(&era)) {
        let verdict = match look(&mut client, case).await {
            Ok(Some(found)) => case.judge(&found),
            Ok(None) => Verdict::Missing,
            Err(error) => Verdict::Failed(cut(&error.to_string())),
        };
        findings.push(Finding {
            case: case.name,
            verdict,
        });
    }
    Ok(findings)
}

/// The checked part of the case; `None` if it is missing.
async fn look(client: &mut Client, case: &Case) -> Result<Option<String>> {
    let part = |text: &str, before: &str| {
        raw::at(text, &format!("{before}{}", case.at)).map(str::to_owned)
    };
    Ok(match case.look {
        Look::Opening => part(&client.opening, "/result"),
        Look::Page(method, member) => part(&client.list(method, member).await?.0, "/result"),
        Look::Entry(method, member, name) => {
            let (_, entries) = client.list(method, member).await?;
            let found = entries.iter().find(|entry| is_named(entry, name));
            let entry =
                found.ok_or_else(|| BenchError::Wrong(format!("{method} has no {name:?}")))?;
            part(entry, "")
        }
        Look::Result => part(&succeeded(ask(client, case).await?)?.response, "/result"),
        Look::Whole => {
            let response = ask(client, case).await?.response;
            match (part(&response, ""), raw::at(&response, "/result")) {
                (None, Some(result)) => {
                    return Err(BenchError::Wrong(format!(
                        "a result instead: {}",
                        raw::compact(result)
                    )));
                }
                (found, _) => found,
            }
        }
        Look::Notifications(method) => {
            let mut transcript = succeeded(ask(client, case).await?)?;
            transcript
                .notifications
                .extend(client.late_messages().await);
            let of_method =
                |text: &&String| raw::text_at(text, "/method").as_deref() == Some(method);
            let params = transcript
                .notifications
                .iter()
                .filter(of_method)
                .filter_map(|text| raw::at(text, "/params"));
            let params: Vec<&str> = params.collect();
            if params.is_empty() {
                None
            } else {
                part(&format!("[{}]", params.join(",")), "")
            }
        }
        Look::Arrived => {
            let response = succeeded(ask(client, case).await?)?.response;
            let arrived = raw::text_at(&response, "/result/content/0/text");
            let arrived = arrived
                .ok_or_else(|| BenchError::Wrong("the server's answer has no text".into()))?;
            part(&arrived, "")
        }
    })
}

/// Sends the request of a case with the gateway's name of the tool or prompt.
async fn ask(client: &mut Client, case: &Case) -> Result<Transcript> {
    let (name, params) = match (case.tool, case.method) {
        (Some(tool), _) => {
            let name = client.name_of("tools/list", "tools", tool).await?;
            let more = if case.params.is_empty() {
                r#""arguments":{}"#
            } else {
                case.params
            };
            (Some(name.clone()), format!(r#""name":"{name}",{more}"#))
        }
        (None, "prompts/get") => {
            let name = client.name_of("prompts/list", "prompts", "greet").await?;
            (Some(name.clone()), format!(r#""name":"{name}""#))
        }
        (None, "resources/read") => (Some("example://docs/1".to_owned()), case.params.to_owned()),
        (None, _) => (None, case.params.to_owned()),
    };
    client
        .ask(Ask {
            method: case.method,
            name: name.as_deref(),
            params: &params,
            meta: case.meta,
            id: case.id,
        })
        .await
}

/// The transcript, or an error if the response is one.
fn succeeded(transcript: Transcript) -> Result<Transcript> {
    match raw::at(&transcript.response, "/error") {
        Some(error) => Err(BenchError::Refused(raw::compact(error))),
        None => Ok(transcript),
    }
}

fn is_named(entry: &str, name: &str) -> bool {
    let names = ["/name", "/uri"]
        .iter()
        .filter_map(|pointer| raw::text_at(entry, pointer));
    super::client::known_as(names, name).is_some()
}

impl Case {
    fn judge(&self, found: &str) -> Verdict {
        let found = raw::compact(found);
        let is_right = match self.as_written {
            true => found == raw::compact(self.expected),
            false => value(&found)
                .zip(value(self.expected))
                .is_some_and(|(found, expected)| is_same(&found, &expected)),
        };
        if is_right {
            Verdict::Preserved
        } else {
            Verdict::Changed(cut(&found))
        }
    }
}

fn value(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

/// Whether two values are equal, with numbers compared by value: `1` is `1.0`.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || one.as_f64() == other.as_f64()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let has_same = |(name, value): (&String, &Value)| {
                other.get(name).is_some_and(|other| is_same(value, other))
            };
            one.len() == other.len() && one.iter().all(has_same)
        }
        _ => one == other,
    }
}

fn cut(text: &str) -> String {
    let end = text
        .char_indices()
        .nth(LONGEST)
        .map_or(text.len(), |(at, _)| at);
    let shown: String = text
        .get(..end)
        .unwrap_or_default()
        .chars()
        .filter(|character| !character.is_control())
        .collect();
    if end < text.len() {
        format!("{shown}…")
    } else {
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeArgs, listen, run};

    /// Without a gateway nothing may be lost; otherwise the case is wrong.
    #[tokio::test]
    async fn server_itself_preserves_everything() {
        for era in Era::ALL {
            let (listeners, addresses) = listen(1).await.unwrap();
            let args = FakeArgs {
                unusual: true,
                ..FakeArgs::plain(era, 1)
            };
            let serving = tokio::spawn(async move { run(&args, listeners).await });
            let findings = examine(addresses[0], &Access::default(), era)
                .await
                .unwrap();
            assert!(findings.len() > 30, "{}", findings.len());
            for finding in findings {
                assert_eq!(
                    finding.verdict,
                    Verdict::Preserved,
                    "{}, {era:?}",
                    finding.case
                );
            }
            serving.abort();
        }
    }

    #[test]
    fn numbers_and_order_count_where_the_text_counts() {
        let named = |name: &str| CASES.iter().find(|case| case.name == name).unwrap();
        let case = named("numbers in structured content");
        assert_eq!(case.judge(case.expected), Verdict::Preserved);
        assert!(matches!(
            case.judge(&case.expected.replace("1.0,", "1,")),
            Verdict::Changed(_)
        ));
        let case = named("structured content");
        let spaced = case.expected.replace(':', " : ");
        assert_eq!(case.judge(&spaced), Verdict::Preserved);
        assert!(matches!(case.judge("{}"), Verdict::Changed(_)));
        let otherwise = r#"{"note":"","rows":[{"b":[null,true,"x"],"a":1.0}]}"#;
        assert_eq!(
            case.judge(otherwise),
            Verdict::Preserved,
            "written otherwise"
        );
        for other in ["2", "true", "\"1\"", "null"] {
            let changed = otherwise.replace("1.0", other);
            assert!(
                matches!(case.judge(&changed), Verdict::Changed(_)),
                "{changed}"
            );
        }
    }
}

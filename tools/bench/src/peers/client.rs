//! A client that accepts answers in any form and keeps them verbatim.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::raw;
use crate::access::Access;
use crate::era::Era;
use crate::error::{BenchError, Result, within};
use crate::load::connection::{Body, Connection, unexpected};
use crate::load::head::{bare, initialized, post};
use crate::load::request::shown;

/// A client with a session in the legacy era, and with the session's stream if the gateway has one.
pub(super) struct Client {
    address: SocketAddr,
    access: Access,
    era: Era,
    session: Option<String>,
    /// The response to `initialize` or `server/discover`.
    pub(super) opening: String,
    /// The lists read so far, by method: the first page, and the entries of all pages.
    lists: HashMap<String, (String, Vec<String>)>,
    stream: mpsc::Receiver<String>,
    _reading: JoinSet<()>,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) method: &'a str,
    /// The value of the header `Mcp-Name` in 2026-07-28: the tool, the prompt or the URI.
    pub(super) name: Option<&'a str>,
    /// The members of the parameters, without `_meta`.
    pub(super) params: &'a str,
    /// The members of `_meta`.
    pub(super) meta: &'a str,
    pub(super) id: &'a str,
}

/// The messages before the response to a request, and the response.
#[derive(Clone, Debug, Default)]
pub(super) struct Transcript {
    pub(super) notifications: Vec<String>,
    pub(super) response: String,
}

/// The time-out of an answer in seconds.
const PATIENCE: u64 = 20;
/// The time by which a notification on the session's stream may follow its response.
const AFTER: Duration = Duration::from_millis(300);
/// The number of messages kept from that stream.
const MESSAGES: usize = 100;
/// The most pages of a list.
const PAGES: usize = 20;

const OF_MODERN: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}"#;

impl Client {
    pub(super) async fn open(address: SocketAddr, access: &Access, era: Era) -> Result<Self> {
        let (sender, stream) = mpsc::channel(MESSAGES);
        let (session, opening, reading) = (None, String::new(), JoinSet::new());
        let (access, lists) = (access.clone(), HashMap::new());
        let mut client = Self {
            address,
            access,
            era,
            session,
            opening,
            lists,
            stream,
            _reading: reading,
        };
        let opening = match era {
            Era::Modern => Ask {
                method: "server/discover",
                name: None,
                params: "",
                meta: "",
                id: "1",
            },
            Era::Legacy => Ask {
                method: "initialize",
                name: None,
                params: r#""protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}"#,
                meta: "",
                id: "1",
            },
        };
        client.opening = client.ask(opening).await?.response;
        if raw::at(&client.opening, "/result").is_none() {
            return Err(BenchError::Unsupported(format!(
                "no {} client is served: {}",
                era.as_str(),
                client.opening
            )));
        }
        if era == Era::Legacy {
            let (session, token) = (client.session.clone(), client.access.token.clone());
            let mut connection = client.connect().await?;
            let head = connection
                .send(&initialized(session.as_deref(), token.as_deref()))
                .await?;
            connection.body(&head).await?;
            let request = bare("GET", "/mcp", session.as_deref(), token.as_deref());
            let connection = client.connect().await?;
            client
                ._reading
                .spawn(read_stream(connection, request, sender));
        }
        Ok(client)
    }

    async fn connect(&self) -> Result<Connection> {
        Connection::open(self.address, self.access.tls.as_ref()).await
    }

    /// Sends a request on its own connection and waits for the response.
    pub(super) async fn ask(&mut self, ask: Ask<'_>) -> Result<Transcript> {
        within(ask.method, PATIENCE, self.exchange(ask)).await
    }

    async fn exchange(&mut self, ask: Ask<'_>) -> Result<Transcript> {
        let of_era = if self.era == Era::Modern && ask.method != "initialize" {
            OF_MODERN
        } else {
            ""
        };
        let meta: Vec<&str> = [ask.meta, of_era]
            .into_iter()
            .filter(|members| !members.is_empty())
            .collect();
        let meta = if meta.is_empty() {
            String::new()
        } else {
            format!(r#""_meta":{{{}}}"#, meta.join(","))
        };
        let params: Vec<&str> = [ask.params, &meta]
            .into_iter()
            .filter(|members| !members.is_empty())
            .collect();
        let (method, id) = (ask.method, ask.id);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{}}}}}"#,
            params.join(",")
        );
        let mut headers = Vec::new();
        if self.era == Era::Modern {
            headers.push(("mcp-method", method.to_owned()));
            headers.extend(ask.name.map(|name| ("mcp-name", name.to_owned())));
        }
        let request = post(
            "/mcp",
            self.era,
            &body,
            self.session.as_deref(),
            self.access.token.as_deref(),
            &headers,
        );
        let mut connection = self.connect().await?;
        let head = connection.send(&request).await?;
        if method == "initialize" {
            self.session.clone_from(&head.session);
        }
        if !head.events {
            let body = connection.body(&head).await?;
            let response = String::from_utf8_lossy(&body).into_owned();
            return match raw::at(&response, "/jsonrpc") {
                Some(_) => Ok(Transcript {
                    notifications: Vec::new(),
                    response,
                }),
                None => Err(unexpected(&head, &body)),
            };
        }
        let (mut events, mut notifications) = (Body::new(&head), Vec::new());
        loop {
            let is_complete = connection.read_body(&mut events).await?;
            while let Some(event) = events.next_event() {
                let text = String::from_utf8_lossy(&event).into_owned();
                match is_response(&event) {
                    true => {
                        return Ok(Transcript {
                            notifications,
                            response: text,
                        });
                    }
                    false => notifications.push(text),
                }
            }
            if is_complete {
                return Err(BenchError::Wrong(format!(
                    "no response to {method}: {}",
                    shown(body.as_bytes())
                )));
            }
        }
    }

    /// The messages on the session's stream so far and within a moment.
    pub(super) async fn late_messages(&mut self) -> Vec<String> {
        let mut messages = Vec::new();
        while let Ok(Some(message)) = tokio::time::timeout(AFTER, self.stream.recv()).await {
            messages.push(message);
        }
        messages
    }

    /// The first page of a list, and the entries of all pages.
    pub(super) async fn list(
        &mut self,
        method: &str,
        member: &str,
    ) -> Result<(String, Vec<String>)> {
        if let Some(known) = self.lists.get(method) {
            return Ok(known.clone());
        }
        let (mut first, mut entries, mut cursor) = (None, Vec::new(), String::new());
        for _ in 0..PAGES {
            let page = self
                .ask(Ask {
                    method,
                    name: None,
                    params: &cursor,
                    meta: "",
                    id: "2",
                })
                .await?
                .response;
            let list = raw::at(&page, &format!("/result/{member}"));
            let list = list.ok_or_else(|| BenchError::Refused(shown(page.as_bytes())))?;
            entries.extend(raw::elements(list));
            let next = raw::at(&page, "/result/nextCursor").filter(|next| next.starts_with('"'));
            cursor = next
                .map(|next| format!(r#""cursor":{next}"#))
                .unwrap_or_default();
            first.get_or_insert(page);
            if cursor.is_empty() {
                break;
            }
        }
        let list = (first.unwrap_or_default(), entries);
        self.lists.insert(method.to_owned(), list.clone());
        Ok(list)
    }

    /// The gateway's name for the entry that the server calls `name`: gateways add prefixes and
    /// replace separators.
    pub(super) async fn name_of(
        &mut self,
        method: &str,
        member: &str,
        name: &str,
    ) -> Result<String> {
        let (_, entries) = self.list(method, member).await?;
        let names = entries
            .iter()
            .filter_map(|entry| raw::text_at(entry, "/name"));
        known_as(names, name).ok_or_else(|| BenchError::Wrong(format!("{method} has no {name:?}")))
    }
}

/// The shortest of `names` that ends with `name`, if only letters and digits count.
pub(super) fn known_as(names: impl Iterator<Item = String>, name: &str) -> Option<String> {
    let plain = |text: &str| {
        text.chars()
            .filter(char::is_ascii_alphanumeric)
            .collect::<String>()
            .to_ascii_lowercase()
    };
    let wanted = plain(name);
    names
        .filter(|known| plain(known).ends_with(&wanted))
        .min_by_key(String::len)
}

fn is_response(message: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow, default)]
        id: Option<&'a RawValue>,
        #[serde(default)]
        method: Option<String>,
    }
    serde_json::from_slice::<Message<'_>>(message)
        .is_ok_and(|message| message.id.is_some() && message.method.is_none())
}

/// Forwards the messages of a session's stream until it ends. A gateway need not have one.
async fn read_stream(mut connection: Connection, request: Vec<u8>, sender: mpsc::Sender<String>) {
    let Ok(head) = connection.send(&request).await else {
        return;
    };
    if head.status != 200 || !head.events {
        return;
    }
    let mut body = Body::new(&head);
    while let Ok(false) = connection.read_body(&mut body).await {
        while let Some(event) = body.next_event() {
            // Messages that nobody reads are dropped.
            let _ = sender.try_send(lossy(&event));
        }
    }
}

fn lossy(event: &Bytes) -> String {
    String::from_utf8_lossy(event).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_is_found_under_the_name_that_a_gateway_gives_it() {
        let names = || {
            ["s0-text-200", "s0-long-text-200", "other"]
                .map(str::to_owned)
                .into_iter()
        };
        assert_eq!(
            known_as(names(), "text_200").as_deref(),
            Some("s0-text-200")
        );
        assert_eq!(known_as(names(), "nothing"), None);
    }

    #[test]
    fn response_has_an_id_and_no_method() {
        assert!(is_response(br#"{"result":{},"id":"a"}"#));
        assert!(!is_response(br#"{"method":"ping","id":1}"#));
        assert!(!is_response(br#"{"method":"notifications/progress"}"#));
    }
}

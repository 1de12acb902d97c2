//! A client that accepts answers in any form.

use std::net::SocketAddr;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::raw;
use crate::access::Access;
use crate::era::Era;
use crate::error::{BenchError, Result, within};
use crate::load::connection::{Body, Connection, unexpected};
use crate::load::head::{initialized, post};
use crate::load::request::excerpt;

/// A client with a session in the legacy era.
pub(super) struct Client {
    address: SocketAddr,
    access: Access,
    era: Era,
    session: Option<String>,
}

/// The time-out of an answer in seconds.
const PATIENCE: u64 = 20;
/// The most pages of a list.
const PAGES: usize = 20;

const OF_MODERN: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

impl Client {
    pub(super) async fn open(address: SocketAddr, access: &Access, era: Era) -> Result<Self> {
        let mut client = Self {
            address,
            access: access.clone(),
            era,
            session: None,
        };
        let opening = match era {
            Era::Modern => client.ask("server/discover", "").await?,
            Era::Legacy => {
                let params = r#""protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}"#;
                client.ask("initialize", params).await?
            }
        };
        if raw::at(&opening, "/result").is_none() {
            return Err(BenchError::Unsupported(format!(
                "no {} client is served: {opening}",
                era.as_str(),
            )));
        }
        if era == Era::Legacy {
            let mut connection = client.connect().await?;
            let (session, token) = (client.session.as_deref(), client.access.token.as_deref());
            let head = connection.send(&initialized(session, token)).await?;
            connection.body(&head).await?;
        }
        Ok(client)
    }

    async fn connect(&self) -> Result<Connection> {
        Connection::open(self.address, self.access.tls.as_ref()).await
    }

    /// Sends a request on its own connection and waits for the response.
    async fn ask(&mut self, method: &str, params: &str) -> Result<String> {
        within(method, PATIENCE, self.exchange(method, params)).await
    }

    async fn exchange(&mut self, method: &str, params: &str) -> Result<String> {
        let of_era = if self.era == Era::Modern {
            OF_MODERN
        } else {
            ""
        };
        let params: Vec<&str> = [params, of_era]
            .into_iter()
            .filter(|members| !members.is_empty())
            .collect();
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{}}}}}"#,
            params.join(",")
        );
        let mut headers = Vec::new();
        if self.era == Era::Modern {
            headers.push(("mcp-method", method.to_owned()));
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
                Some(_) => Ok(response),
                None => Err(unexpected(&head, &body)),
            };
        }
        let mut events = Body::new(&head);
        loop {
            let is_complete = connection.read_body(&mut events).await?;
            while let Some(event) = events.next_event() {
                if is_response(&event) {
                    return Ok(String::from_utf8_lossy(&event).into_owned());
                }
            }
            if is_complete {
                return Err(BenchError::Wrong(format!(
                    "no response to {method}: {}",
                    excerpt(body.as_bytes())
                )));
            }
        }
    }

    /// The gateway's name for the entry that the server calls `name`: gateways add prefixes and
    /// replace separators.
    pub(super) async fn name_of(
        &mut self,
        method: &str,
        member: &str,
        name: &str,
    ) -> Result<String> {
        let (mut entries, mut cursor) = (Vec::new(), String::new());
        for _ in 0..PAGES {
            let page = self.ask(method, &cursor).await?;
            let list = raw::at(&page, &format!("/result/{member}"));
            let list = list.ok_or_else(|| BenchError::Refused(excerpt(page.as_bytes())))?;
            entries.extend(raw::elements(list));
            let next = raw::at(&page, "/result/nextCursor").filter(|next| next.starts_with('"'));
            let Some(next) = next else { break };
            cursor = format!(r#""cursor":{next}"#);
        }
        let names = entries
            .iter()
            .filter_map(|entry| raw::text_at(entry, "/name"));
        known_as(names, name).ok_or_else(|| BenchError::Wrong(format!("{method} has no {name:?}")))
    }
}

/// The shortest of `names` that ends with `name`, if only letters and digits count.
fn known_as(names: impl Iterator<Item = String>, name: &str) -> Option<String> {
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

//! Finds the client's message that caused a message of a server.

use std::collections::HashMap;

use bytes::Bytes;
use fanlight_protocol::json::DEFAULT_NESTING;
use fanlight_protocol::{Json, Message, Method, Notification};

use super::To;
use super::tap::Captured;

/// The most requests whose causes are remembered: of one connection, and of all together.
const MOST: (usize, usize) = (10_000, 100_000);

/// The causes of requests that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Causes {
    connections: HashMap<u64, Open>,
    /// The number of remembered requests.
    count: usize,
}

/// The requests of one connection to a server, by their ids.
#[derive(Debug, Default)]
struct Open {
    /// Requests to the server, oldest first.
    sent: Vec<Request>,
    /// Requests of the server.
    asked: Vec<Request>,
}

/// A request without an answer.
#[derive(Debug)]
struct Request {
    id: Json,
    progress_token: Option<Json>,
    cause: u64,
}

impl Causes {
    /// The exchange that caused a message. The edge tells the cause of requests to the server, and
    /// of their answers over HTTP. Every other message is related to a request.
    pub(super) fn find(&mut self, captured: &Captured, text: &Bytes) -> Option<u64> {
        let known = Some(captured.cause).filter(|cause| *cause > 0);
        let has_room = self.count < MOST.1;
        let open = self.connections.entry(captured.connection).or_default();
        self.count -= open.len();
        let cause = match (Message::parse(text.clone(), DEFAULT_NESTING), captured.to) {
            (Ok(Message::Request(request)), To::Server) => {
                let meta = request.params.and_then(|params| params.get("_meta"));
                let token = meta.and_then(|meta| meta.get("progressToken"));
                remember(
                    &mut open.sent,
                    request.id,
                    token,
                    known.filter(|_| has_room),
                );
                known
            }
            (Ok(Message::Response(response)), To::Client) => {
                take(&mut open.sent, &response.id()).or(known)
            }
            (Ok(Message::Request(request)), To::Client) => {
                let cause = known.or_else(|| open.latest());
                remember(
                    &mut open.asked,
                    request.id,
                    None,
                    cause.filter(|_| has_room),
                );
                cause
            }
            (Ok(Message::Response(response)), To::Server) => {
                take(&mut open.asked, &response.id()).or(known)
            }
            (Ok(Message::Notification(notification)), _) => {
                known.or_else(|| open.cause_of(&notification))
            }
            (Err(_), _) => known,
        };
        self.count += open.len();
        if open.len() == 0 {
            self.connections.remove(&captured.connection);
        }
        cause
    }
}

impl Open {
    fn len(&self) -> usize {
        self.sent.len() + self.asked.len()
    }

    /// The cause of the latest request that the server has not answered.
    fn latest(&self) -> Option<u64> {
        self.sent.last().map(|request| request.cause)
    }

    /// The cause of the request that a notification is about.
    fn cause_of(&self, notification: &Notification) -> Option<u64> {
        let params = notification.text.get("params");
        let member = |name| params.as_ref().and_then(|params| params.get(name));
        let mut all = self.sent.iter().chain(&self.asked);
        let named = match notification.method {
            Method::Progress => {
                let token = member("progressToken")?;
                all.find(|request| request.progress_token.as_ref() == Some(&token))
            }
            Method::Cancelled => {
                let id = member("requestId")?;
                all.find(|request| request.id == id)
            }
            _ => return self.latest(),
        };
        named.map(|request| request.cause)
    }
}

fn remember(open: &mut Vec<Request>, id: Json, progress_token: Option<Json>, cause: Option<u64>) {
    if let Some(cause) = cause.filter(|_| open.len() < MOST.0) {
        open.push(Request {
            id,
            progress_token,
            cause,
        });
    }
}

fn take(open: &mut Vec<Request>, id: &Json) -> Option<u64> {
    let at = open.iter().position(|request| request.id == *id)?;
    Some(open.remove(at).cause)
}

#[cfg(test)]
mod tests {
    use super::super::tap::Party;
    use super::*;

    #[test]
    fn requests_of_all_connections_together_are_bounded() {
        let mut causes = Causes::default();
        let text = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        let answer = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        let captured = |connection, to| Captured {
            to,
            cause: if to == To::Server { 7 } else { 0 },
            ..Captured::line(Party::Server { name: "s".into() }, connection, text.clone())
        };
        for connection in 0..MOST.1 as u64 + 10 {
            let cause = causes.find(&captured(connection, To::Server), &text);
            assert_eq!(cause, Some(7));
        }
        assert_eq!((causes.count, causes.connections.len()), (MOST.1, MOST.1));
        let find = |causes: &mut Causes, connection| {
            causes.find(&captured(connection, To::Client), &answer)
        };
        assert_eq!(find(&mut causes, 3), Some(7));
        assert_eq!(find(&mut causes, MOST.1 as u64 + 5), None);
        assert_eq!(
            (causes.count, causes.connections.len()),
            (MOST.1 - 1, MOST.1 - 1)
        );
    }
}

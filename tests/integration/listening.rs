//! Server messages outside of calls, from end to end: subscriptions, server requests, log messages,
//! and the lists that the gateway caches while it listens.

mod announcer;
mod catalogue;
mod combinations;
mod outside_of_calls;
mod own_process;
mod shared;

use fanlight_tests::slicer::{member, member_at};

use self::announcer::Announcer;
use crate::clients::Client;
use crate::raw_client::{LISTEN, Response, legacy_request, listen};
use crate::scripted::{Era, Transport};

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
const UPDATED: &str = "notifications/resources/updated";
const LOGGED: &str = "notifications/message";
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// The raw id of a [`ListeningClient`]'s subscription, in a form that an encoder would not write.
const ID: &str = r#""\u0073ub\/1""#;

/// A client that receives messages outside of its calls.
struct ListeningClient {
    client: Client,
    /// The event stream; `None` over stdio.
    stream: Option<Response>,
}

impl ListeningClient {
    /// Starts a gateway whose client subscribes to changes of the tools and of these resources.
    async fn open(config_text: &str, (era, transport): (Era, Transport), uris: &[String]) -> Self {
        Self::open_with("{}", config_text, (era, transport), uris).await
    }

    /// [`Self::open`] with these raw capabilities of the client.
    async fn open_with(
        capabilities: &str,
        config_text: &str,
        (era, transport): (Era, Transport),
        uris: &[String],
    ) -> Self {
        let client = Client::start_with(capabilities, config_text, era, transport).await;
        let mut listener = Self {
            client,
            stream: None,
        };
        match era {
            Era::Legacy => {
                if transport == Transport::Http {
                    listener.stream = Some(listener.client.session().stream(None).await);
                }
                for uri in uris {
                    listener
                        .request("resources/subscribe", &format!(r#""uri":"{uri}""#))
                        .await;
                }
            }
            Era::Modern => {
                let filter = filter(uris);
                match transport {
                    Transport::Http => {
                        listener.stream =
                            Some(listen(listener.client.address(), ID, &filter).await);
                    }
                    Transport::Stdio => {
                        let params = format!(r#""notifications":{filter}"#);
                        let request = listener.client.request_text(ID, LISTEN, &params, "");
                        listener.client.stdio().send(&request).await;
                    }
                }
                let acknowledged = listener.next_message().await;
                assert_eq!(
                    member(&acknowledged, "params.notifications"),
                    Some(filter.as_str()),
                    "{acknowledged}"
                );
            }
        }
        listener
    }

    /// The next message outside of calls. It must have the id of the client's subscription, if
    /// there is one.
    async fn next_message(&mut self) -> String {
        let message = match &mut self.stream {
            Some(stream) => stream
                .event()
                .await
                .expect("a whole stream")
                .expect("a message before the end"),
            None => self
                .client
                .stdio()
                .receive()
                .await
                .expect("a message before the end"),
        };
        let id = member_at(&message, &["params", "_meta", SUBSCRIPTION_ID]);
        let expected = if self.client.era == Era::Modern {
            Some(ID)
        } else {
            None
        };
        assert_eq!(id, expected, "{message}");
        message
    }

    async fn expect_tools_changed(&mut self) {
        let message = self.next_message().await;
        assert!(message.contains(TOOLS_CHANGED), "{message}");
    }

    /// Checks that the next message is this update, with all members of the server.
    async fn expect_update(&mut self, uri: &str, number: &str) {
        let message = self.next_message().await;
        assert!(message.contains(UPDATED), "{message}");
        assert_eq!(
            member(&message, "params.uri"),
            Some(format!("\"{uri}\"").as_str()),
            "{message}"
        );
        assert_eq!(member(&message, "params.n"), Some(number), "{message}");
    }

    /// The raw result of a request; fails if a message arrives before the result.
    async fn request(&mut self, method: &str, params: &str) -> String {
        let exchange = self
            .client
            .request(r#""request""#, method, params, "")
            .await;
        assert_eq!(exchange.before, [""; 0], "{method}");
        exchange.member("result").to_owned()
    }
}

/// A modern client's filter for changes of the tools and of these resources.
fn filter(uris: &[String]) -> String {
    let uris: Vec<String> = uris.iter().map(|uri| format!("\"{uri}\"")).collect();
    format!(
        r#"{{"toolsListChanged":true,"resourceSubscriptions":[{}]}}"#,
        uris.join(",")
    )
}

fn other_era(era: Era) -> Era {
    if era == Era::Legacy {
        Era::Modern
    } else {
        Era::Legacy
    }
}

fn other_transport(transport: Transport) -> Transport {
    if transport == Transport::Http {
        Transport::Stdio
    } else {
        Transport::Http
    }
}

/// Ends the subscription: a legacy client unsubscribes, a modern one closes the stream.
async fn unsubscribe(listener: &mut ListeningClient, uri: &str) {
    match (listener.client.era, listener.stream.is_some()) {
        (Era::Legacy, _) => drop(
            listener
                .request("resources/unsubscribe", &format!(r#""uri":"{uri}""#))
                .await,
        ),
        (Era::Modern, true) => listener.stream = None,
        (Era::Modern, false) => {
            let params = format!(r#""requestId":{ID}"#);
            let cancel = legacy_request("0", "notifications/cancelled", &params).replacen(
                r#""id":0,"#,
                "",
                1,
            );
            listener.client.stdio().send(&cancel).await;
        }
    }
}

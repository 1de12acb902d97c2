//! A server that sends notifications outside of calls when its test asks for it, in the form of its
//! era.

use crate::scripted::{Backend, Era, Reply, Stream, Transport};

/// A server with a tool `t` and one resource, which announces changes on request.
pub(super) struct Announcer {
    pub(super) backend: Backend,
    pub(super) era: Era,
    pub(super) transport: Transport,
    name: &'static str,
}

impl Announcer {
    /// Starts a server with a tool `t` and one resource.
    pub(super) async fn start((era, transport): (Era, Transport), name: &'static str) -> Self {
        let backend = Backend::start(era, transport).await;
        let logging = if era == Era::Legacy {
            r#","logging":{}"#
        } else {
            ""
        };
        backend.declares(&format!(
            r#"{{"tools":{{"listChanged":true}},"resources":{{"subscribe":true,"listChanged":true}}{logging}}}"#
        ));
        backend.offers_tools(&["t"]);
        backend.on("tools/call", Reply::result(era.complete(r#""content":[]"#)));
        match (era, transport) {
            (Era::Modern, _) => backend.on("subscriptions/listen", Reply::listening()),
            (Era::Legacy, Transport::Http) => backend.serves_get(),
            (Era::Legacy, Transport::Stdio) => {
                backend.on("notifications/initialized", Reply::driven());
            }
        }
        let announcer = Self {
            backend,
            era,
            transport,
            name,
        };
        let resource = format!(r#"{{"uri":"{}","name":"r"}}"#, announcer.uri());
        announcer.backend.on(
            "resources/list",
            announcer.backend.list("resources", &resource),
        );
        announcer
    }

    pub(super) fn uri(&self) -> String {
        format!("test://{}/r", self.name)
    }

    pub(super) fn entry(&self) -> String {
        self.backend.entry(self.name)
    }

    /// Announces to all listeners that its tools have changed.
    pub(super) async fn announce_tools_changed(&self) {
        for stream in self.streams().await {
            self.send(&stream, super::TOOLS_CHANGED, "").await;
        }
    }

    /// Announces to all subscribers that its resource has changed; `number` is an extra member,
    /// raw.
    pub(super) async fn announce_update(&self, number: &str) {
        let params = format!(r#""uri":"{}","n":{number}"#, self.uri());
        for stream in self.subscribed_streams().await {
            self.send(&stream, super::UPDATED, &params).await;
        }
    }

    /// Sends the notification on one stream.
    pub(super) async fn send(&self, stream: &Stream, method: &str, params: &str) {
        match self.era {
            Era::Modern => stream.notify(method, params).await,
            Era::Legacy if params.is_empty() => {
                stream
                    .message(&format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#))
                    .await;
            }
            Era::Legacy => {
                stream
                    .message(&format!(
                        r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{params}}}}}"#
                    ))
                    .await;
            }
        }
    }

    /// Every stream on which it can announce something: the newest subscription of a modern server,
    /// which covers the others; the streams of all sessions or processes of a legacy server.
    pub(super) async fn streams(&self) -> Vec<Stream> {
        match (self.era, self.transport) {
            (Era::Legacy, Transport::Stdio) => {
                let processes = self
                    .backend
                    .wait_for("notifications/initialized", 1)
                    .await
                    .len();
                self.backend.stream(processes - 1).await;
            }
            _ => drop(self.backend.stream(0).await),
        }
        let all = self.backend.streams();
        match self.era {
            Era::Legacy => all,
            Era::Modern => all.into_iter().next_back().into_iter().collect(),
        }
    }

    /// The streams whose clients have subscribed to its resource.
    async fn subscribed_streams(&self) -> Vec<Stream> {
        if (self.era, self.transport) != (Era::Legacy, Transport::Http) {
            return self.streams().await;
        }
        let newest = self
            .backend
            .wait_for("resources/subscribe", 1)
            .await
            .pop()
            .expect("one at least");
        vec![
            self.backend
                .stream_of(newest.header("mcp-session-id").expect("a session"))
                .await,
        ]
    }
}

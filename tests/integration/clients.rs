//! One interface to all raw clients, so that a test can be written once for every {client era} ×
//! {HTTP, stdio}.

use fanlight_tests::slicer;

use crate::harness::{Gateway, Log, StdioGateway};
use crate::raw_client::{
    LegacySession, NEWEST_LEGACY, StdioClient, legacy_request, modern_request_with, post_modern,
};
use crate::schema::Checks;
use crate::scripted::{Era, Transport};

/// A raw client of a gateway that was started for it.
pub(crate) struct Client {
    pub(crate) era: Era,
    front: Front,
    /// The progress token of the requests as raw text; empty for none.
    pub(crate) progress_token: String,
    /// The declared capabilities as raw text. A modern client sends them with each request, a
    /// legacy one in `initialize`.
    pub(crate) capabilities: String,
}

enum Front {
    ModernHttp(Gateway),
    LegacyHttp(Gateway, LegacySession),
    Stdio(StdioGateway, StdioClient),
}

/// The messages received for one request.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Messages on the request's stream before the response.
    pub(crate) before: Vec<String>,
    /// The raw response.
    pub(crate) answer: String,
}

impl Exchange {
    /// The raw text of a member of the response; fails the test if it is missing.
    pub(crate) fn member(&self, path: &str) -> &str {
        slicer::member(&self.answer, path)
            .unwrap_or_else(|| panic!("no `{path}` in {}", self.answer))
    }

    /// The raw text of a member at a path whose names have dots; `None` if it is missing.
    pub(crate) fn member_at(&self, path: &[&str]) -> Option<&str> {
        slicer::member_at(&self.answer, path)
    }
}

impl Exchange {
    /// The required input by key, if the response requires any.
    pub(crate) fn inputs(&self) -> Option<Vec<(&str, &str)>> {
        let wanted =
            slicer::member(&self.answer, "result.resultType") == Some(r#""input_required""#);
        wanted.then(|| {
            slicer::members(slicer::member(&self.answer, "result.inputRequests").unwrap_or("{}"))
                .unwrap()
        })
    }

    /// The params of the retry with these inputs, as raw members; `params` are the params of the
    /// first request.
    pub(crate) fn retry(&self, params: &str, responses: &str) -> String {
        let state = slicer::member(&self.answer, "result.requestState");
        let state = state
            .map(|state| format!(r#","requestState":{state}"#))
            .unwrap_or_default();
        format!(r#"{params},"inputResponses":{{{responses}}}{state}"#)
    }
}

impl Client {
    /// Starts a gateway with this configuration and completes the handshake of the era, if it has
    /// one.
    pub(crate) async fn start(config_text: &str, era: Era, transport: Transport) -> Self {
        Self::start_with("{}", config_text, era, transport).await
    }

    /// [`Self::start`] with these raw capabilities.
    pub(crate) async fn start_with(
        capabilities: &str,
        config_text: &str,
        era: Era,
        transport: Transport,
    ) -> Self {
        let front = match (transport, era) {
            (Transport::Http, Era::Modern) => Front::ModernHttp(Gateway::start(config_text).await),
            (Transport::Http, Era::Legacy) => {
                let gateway = Gateway::start(config_text).await;
                let session =
                    LegacySession::open_with(gateway.mcp, NEWEST_LEGACY, capabilities).await;
                Front::LegacyHttp(gateway, session)
            }
            (Transport::Stdio, era) => {
                let mut gateway = Gateway::stdio(config_text);
                let mut client = StdioClient::new(&mut gateway);
                if era == Era::Legacy {
                    client.initialize_with(NEWEST_LEGACY, capabilities).await;
                }
                Front::Stdio(gateway, client)
            }
        };
        Self {
            era,
            front,
            progress_token: String::new(),
            capabilities: capabilities.to_owned(),
        }
    }

    /// The text of a request of this client's era; `params` and `meta` are raw members without
    /// braces.
    pub(crate) fn request_text(&self, id: &str, method: &str, params: &str, meta: &str) -> String {
        let mut meta = meta.to_owned();
        if !self.progress_token.is_empty() {
            let comma = if meta.is_empty() { "" } else { "," };
            meta = format!(r#""progressToken":{}{comma}{meta}"#, self.progress_token);
        }
        match self.era {
            Era::Modern => modern_request_with(&self.capabilities, id, method, params, &meta),
            Era::Legacy if meta.is_empty() => legacy_request(id, method, params),
            Era::Legacy => {
                let comma = if params.is_empty() { "" } else { "," };
                legacy_request(id, method, &format!(r#"{params}{comma}"_meta":{{{meta}}}"#))
            }
        }
    }

    /// Sends a request and waits for its response.
    pub(crate) async fn request(
        &mut self,
        id: &str,
        method: &str,
        params: &str,
        meta: &str,
    ) -> Exchange {
        let text = self.request_text(id, method, params, meta);
        let (before, answer) = match &mut self.front {
            Front::ModernHttp(gateway) => post_modern(gateway.mcp, &text).await.messages().await,
            Front::LegacyHttp(_, session) => session.post(&text).await.messages().await,
            Front::Stdio(_, client) => client.call(&text).await,
        };
        Exchange { before, answer }
    }

    /// Sends a request and answers server requests with `answer`, in the form of the client's era.
    /// `answer` gets the raw method and params and returns a raw result.
    pub(crate) async fn converse(
        &mut self,
        id: &str,
        method: &str,
        params: &str,
        mut answer: impl FnMut(&str, Option<&str>) -> String,
    ) -> Exchange {
        if self.era == Era::Modern {
            return self.bring_inputs(id, method, params, answer).await;
        }
        let text = self.request_text(id, method, params, "");
        let mut respond = |message: &str| {
            let method = slicer::member(message, "method").and_then(slicer::plain_string)?;
            let (id, result) = (
                slicer::member(message, "id")?,
                answer(method, slicer::member(message, "params")),
            );
            Some(format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
            ))
        };
        let mut before = Vec::new();
        match &mut self.front {
            Front::LegacyHttp(_, session) => {
                let mut stream = session.post(&text).await;
                while let Some(message) = stream.event().await.expect("a whole stream") {
                    if let Some(response) = respond(&message) {
                        assert_eq!(session.post(&response).await.status, 202);
                    }
                    before.push(message);
                }
            }
            Front::Stdio(_, client) => {
                client.send(&text).await;
                while before
                    .last()
                    .is_none_or(|line| slicer::member(line, "method").is_some())
                {
                    let line = client.receive().await.expect("a response before the end");
                    if let Some(response) = respond(&line) {
                        client.send(&response).await;
                    }
                    before.push(line);
                }
            }
            Front::ModernHttp(_) => unreachable!("its era is modern"),
        }
        let answer = before.pop().expect("an answer");
        Exchange { before, answer }
    }

    /// 2026-07-28 multi-round-trip requests: retries the request with the inputs until the response
    /// is complete.
    async fn bring_inputs(
        &mut self,
        id: &str,
        method: &str,
        params: &str,
        mut answer: impl FnMut(&str, Option<&str>) -> String,
    ) -> Exchange {
        let mut exchange = self.request(id, method, params, "").await;
        while let Some(inputs) = exchange.inputs() {
            let responses: Vec<String> = inputs
                .iter()
                .map(|(key, input)| {
                    let method = slicer::member(input, "method")
                        .and_then(slicer::plain_string)
                        .expect("a method");
                    format!(
                        r#""{key}":{}"#,
                        answer(method, slicer::member(input, "params"))
                    )
                })
                .collect();
            let retry = exchange.retry(params, &responses.join(","));
            exchange = self.request(id, method, &retry, "").await;
        }
        exchange
    }

    /// Calls a tool without arguments.
    pub(crate) async fn call(&mut self, tool: &str) -> Exchange {
        self.request(
            "1",
            "tools/call",
            &format!(r#""name":"{tool}","arguments":{{}}"#),
            "",
        )
        .await
    }

    /// The names of the merged tools, in order.
    pub(crate) async fn tool_names(&mut self) -> Vec<String> {
        let exchange = self.request("1", "tools/list", "", "").await;
        let tools = slicer::elements(exchange.member("result.tools")).unwrap();
        let name = |tool: &&str| {
            slicer::member(tool, "name")
                .unwrap()
                .trim_matches('"')
                .to_owned()
        };
        tools.iter().map(name).collect()
    }

    /// The schema checks of all messages from the gateway to this client.
    pub(crate) fn checks(&self) -> &Checks {
        match &self.front {
            Front::ModernHttp(gateway) | Front::LegacyHttp(gateway, _) => gateway.checks(),
            Front::Stdio(gateway, _) => &gateway.checks,
        }
    }

    /// The log of the gateway.
    pub(crate) fn log(&self) -> &Log {
        match &self.front {
            Front::ModernHttp(gateway) | Front::LegacyHttp(gateway, _) => &gateway.log,
            Front::Stdio(gateway, _) => &gateway.log,
        }
    }

    /// The gateway's address; fails the test if the transport is stdio.
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        match &self.front {
            Front::ModernHttp(gateway) | Front::LegacyHttp(gateway, _) => gateway.mcp,
            Front::Stdio(..) => panic!("the client uses stdio"),
        }
    }

    /// The gateway over HTTP.
    pub(crate) fn gateway(&self) -> &Gateway {
        match &self.front {
            Front::LegacyHttp(gateway, _) | Front::ModernHttp(gateway) => gateway,
            Front::Stdio(..) => panic!("a gateway on standard input and output"),
        }
    }

    /// The legacy HTTP session; fails the test if there is none.
    pub(crate) fn session(&self) -> &LegacySession {
        match &self.front {
            Front::LegacyHttp(_, session) => session,
            Front::ModernHttp(_) | Front::Stdio(..) => panic!("no legacy HTTP session"),
        }
    }

    /// The stdio client; fails the test if the transport is HTTP.
    pub(crate) fn stdio(&mut self) -> &mut StdioClient {
        match &mut self.front {
            Front::Stdio(_, client) => client,
            Front::ModernHttp(_) | Front::LegacyHttp(..) => panic!("the client uses HTTP"),
        }
    }

    /// Ends the client and returns the gateway.
    pub(crate) fn into_gateway(self) -> Gateway {
        match self.front {
            Front::ModernHttp(gateway) | Front::LegacyHttp(gateway, _) => gateway,
            Front::Stdio(..) => panic!("the client uses stdio"),
        }
    }
}

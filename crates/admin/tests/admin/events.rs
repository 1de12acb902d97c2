//! The stream of events.

use std::time::Duration;

use fanlight_admin::AdminSettings;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::scene::{Client, Scene, fake, soon};

/// The events of a response.
pub(crate) struct Events {
    body: Incoming,
    text: String,
    _client: Client,
}

impl Events {
    async fn open(scene: &Scene) -> Self {
        Self::begin(scene, Method::GET, "/api/events", &[], "").await
    }

    /// Sends a request, and returns the events of the response.
    pub(crate) async fn begin(
        scene: &Scene,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Self {
        let mut client = scene.client().await;
        let response = client.open(method, path, headers, body).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self {
            body: response.into_body(),
            text: String::new(),
            _client: client,
        }
    }

    /// The next block; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            let frame = soon(self.body.frame()).await?.unwrap();
            self.text += std::str::from_utf8(&frame.into_data().unwrap()).unwrap();
        }
    }

    /// The data of the next event of this name.
    pub(crate) async fn event(&mut self, name: &str) -> serde_json::Value {
        serde_json::from_str(&self.text(name).await).unwrap()
    }

    /// The text of the next event of this name.
    pub(crate) async fn text(&mut self, name: &str) -> String {
        loop {
            let block = self.next().await.expect("an event");
            if let Some(data) = block.strip_prefix(&format!("event: {name}\ndata: ")) {
                return data.to_owned();
            }
        }
    }
}

async fn scene(settings: AdminSettings) -> Scene {
    let call = ("tools/call", r#""result":{"content":[]}"#);
    Scene::start(vec![fake("a", &[call])], settings).await
}

#[tokio::test]
async fn overview_is_sent_first_then_traces_until_shutdown() {
    let scene = scene(AdminSettings::default()).await;
    let mut events = Events::open(&scene).await;
    let overview = events.event("overview").await;
    assert_eq!(
        (&overview["traces"], &overview["backends"][0]["name"]),
        (&0.into(), &"a".into())
    );
    scene
        .call(r#"{"method":"tools/call","params":{"name":"t"}}"#)
        .await;
    let traces = events.event("traces").await;
    assert_eq!(traces["traces"][0]["name"], "tools/call t");
    assert_eq!(events.event("overview").await["traces"], 1);
    scene.stop().await;
    while events.next().await.is_some() {}
}

#[tokio::test]
async fn keep_alive_comments_fill_silence() {
    let scene = scene(AdminSettings {
        keep_alive: Duration::from_millis(20),
        ..AdminSettings::default()
    })
    .await;
    let mut events = Events::open(&scene).await;
    events.event("overview").await;
    assert_eq!(events.next().await.unwrap(), ": still here");
}

#[tokio::test]
async fn event_streams_are_limited() {
    let scene = scene(AdminSettings {
        max_followers: 1,
        ..AdminSettings::default()
    })
    .await;
    let first = Events::open(&scene).await;
    let refused = scene.get("/api/events").await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        refused.text.contains("event streams are already open"),
        "{}",
        refused.text
    );
    // A closed stream makes room for another one, once the server notices.
    drop(first);
    soon(async {
        loop {
            let mut client = scene.client().await;
            if client
                .open(Method::GET, "/api/events", &[], "")
                .await
                .status()
                == StatusCode::OK
            {
                break;
            }
        }
    })
    .await;
}

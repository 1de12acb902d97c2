//! Sessions of operators whose browser reaches another replica with each request.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use fanlight_admin::AdminSettings;
use fanlight_credentials::{CommonSessions, KeptSession, SignIn};
use fanlight_http::PublicUrl;
use fanlight_protocol::seal::Keys;
use http::{Method, StatusCode};

use crate::issuer::{BEGIN, Issuers, begin, cookies, finish, post, settings};
use crate::people::{People, TOKEN, VIEWER};
use crate::scene::Scene;

/// Common records in memory. They can be away.
#[derive(Debug, Default)]
struct Records {
    kept: Mutex<HashMap<String, KeptSession>>,
    asked: AtomicUsize,
    is_away: AtomicBool,
}

impl Records {
    fn with<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut HashMap<String, KeptSession>) -> T,
    ) -> Result<T, String> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.is_away.load(Ordering::SeqCst) {
            return Err("away".to_owned());
        }
        Ok(change(&mut self.kept.lock().unwrap()))
    }
}

#[async_trait]
impl CommonSessions for Records {
    async fn get(&self, name: &str) -> Result<Option<KeptSession>, String> {
        self.with(|kept| kept.get(name).cloned())
    }

    async fn put(&self, name: &str, session: KeptSession) -> Result<(), String> {
        self.with(|kept| drop(kept.insert(name.to_owned(), session)))
    }

    async fn replace(&self, name: &str, session: KeptSession) -> Result<(), String> {
        self.with(|kept| {
            if let Some(place) = kept.get_mut(name) {
                *place = session;
            }
        })
    }

    async fn remove(&self, name: &str) -> Result<(), String> {
        self.with(|kept| drop(kept.remove(name)))
    }
}

fn keys(byte: u8) -> Keys {
    Keys::new([[byte; 32]])
}

async fn replica(records: &Arc<Records>, byte: u8, settings: AdminSettings) -> Scene {
    let common = (Arc::clone(records) as Arc<dyn CommonSessions>, &keys(byte));
    let issuers: Arc<dyn SignIn> = Arc::new(Issuers::default());
    Scene::replica(settings, Arc::new(People), issuers, common).await
}

/// Two replicas. Behind a load balancer their browsers use one address, and so one name of cookies.
async fn two() -> (Arc<Records>, [Scene; 2]) {
    let records = Arc::new(Records::default());
    let settings = || AdminSettings {
        token: Some(TOKEN.into()),
        public_url: PublicUrl::parse("https://ops.example"),
        ..settings()
    };
    let scenes = [
        replica(&records, 1, settings()).await,
        replica(&records, 1, settings()).await,
    ];
    (records, scenes)
}

async fn signed_in(scene: &Scene, token: &str) -> String {
    let answer = post(
        scene,
        "/api/session",
        None,
        &format!(r#"{{"token":"{token}"}}"#),
    )
    .await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    cookies(&answer).remove(0)
}

async fn status(scene: &Scene, cookie: &str) -> StatusCode {
    let headers = [("cookie", cookie)];
    let answer = scene.send(Method::GET, "/api/overview", &headers, "").await;
    answer.status
}

const OK: StatusCode = StatusCode::OK;
const OVER: StatusCode = StatusCode::UNAUTHORIZED;

#[tokio::test]
async fn browser_may_come_back_to_any_replica() {
    let (_, [one, two]) = two().await;
    let (cookie, state) = begin(&one).await;
    let signed = finish(&two, Some(&cookie), &state, "of-ann").await;
    assert_eq!(signed.status, OK, "{}", signed.text);
    let cookie = cookies(&signed).remove(0);
    for scene in [&one, &two, &one] {
        let headers = [("cookie", cookie.as_str())];
        let who = scene.send(Method::GET, "/api/session", &headers, "").await;
        let expected = r#""name":"ann","source":"sign-in","role":"operator","session":true"#;
        assert!(who.text.contains(expected), "{}", who.text);
    }
    // A viewer stays a viewer.
    let viewer = signed_in(&one, VIEWER).await;
    assert_eq!(status(&two, &viewer).await, OK);
    let reload = post(&two, "/api/reload", Some(&viewer), "").await;
    assert_eq!(reload.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn session_ends_at_all_replicas() {
    let (records, [one, two]) = two().await;
    let cookie = signed_in(&one, TOKEN).await;
    assert_eq!(status(&two, &cookie).await, OK);
    // While the records are away, nobody can end it everywhere, and the answer says so.
    records.is_away.store(true, Ordering::SeqCst);
    let failed = post(&two, "/api/session/end", Some(&cookie), "").await;
    assert_eq!(failed.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(status(&one, &cookie).await, OK, "its own replica knows it");
    assert_eq!(status(&two, &cookie).await, OVER);
    records.is_away.store(false, Ordering::SeqCst);
    let ended = post(&two, "/api/session/end", Some(&cookie), "").await;
    assert_eq!(ended.status, OK);
    for scene in [&one, &two] {
        assert_eq!(status(scene, &cookie).await, OVER);
    }
    assert!(records.kept.lock().unwrap().is_empty());
}

/// A thief's stream at another replica ends with the session, too.
#[tokio::test]
async fn stream_ends_when_another_replica_signs_out() {
    let (_, [one, two]) = two().await;
    let cookie = signed_in(&one, TOKEN).await;
    let stream = async {
        let headers = [("cookie", cookie.as_str())];
        two.send(Method::GET, "/api/events", &headers, "").await
    };
    let ended = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        post(&one, "/api/session/end", Some(&cookie), "").await
    };
    let (stream, ended) = tokio::join!(stream, ended);
    assert_eq!((stream.status, ended.status), (OK, OK));
}

/// Made-up ids, ids of other keys, and proofs that a replica does not accept open nothing.
#[tokio::test]
async fn forged_sessions_are_refused_without_a_request() {
    let (records, [one, two]) = two().await;
    let cookie = signed_in(&one, TOKEN).await;
    let (name, id) = cookie.split_once('=').unwrap();
    let before = records.asked.load(Ordering::SeqCst);
    let forged = [
        "x".to_owned(),
        "A".repeat(id.len()),
        format!("{id}A"),
        id[1..].to_owned(),
    ];
    for id in forged {
        assert_eq!(status(&two, &format!("{name}={id}")).await, OVER, "{id}");
    }
    let stranger = replica(&records, 2, settings()).await;
    assert_eq!(status(&stranger, &cookie).await, OVER);
    assert_eq!(records.asked.load(Ordering::SeqCst), before);
    // The cookie of a sign-in that has only begun is no session, and the other way round.
    let begun = post(&one, "/api/session/issuer", None, BEGIN).await;
    let begun = cookies(&begun).remove(0);
    let (_, attempt) = begun.split_once('=').unwrap();
    assert_eq!(status(&two, &format!("{name}={attempt}")).await, OVER);
    // The token is another one at this replica.
    let other = AdminSettings {
        token: Some("another-token-of-operators".into()),
        public_url: PublicUrl::parse("https://ops.example"),
        ..settings()
    };
    let other = replica(&records, 1, other).await;
    assert_eq!(status(&other, &cookie).await, OVER);
    assert_eq!(status(&two, &cookie).await, OK, "elsewhere it lives");
}

#[tokio::test]
async fn unused_session_is_not_taken_back() {
    let (records, [one, two]) = two().await;
    let cookie = signed_in(&one, TOKEN).await;
    let expire = |at| {
        let mut kept = records.kept.lock().unwrap();
        kept.values_mut().for_each(|one| one.expires = at);
    };
    // It was last used an hour ago, but for ten seconds.
    expire(SystemTime::now() + Duration::from_secs(10));
    assert_eq!(status(&two, &cookie).await, OK);
    let expires = records
        .kept
        .lock()
        .unwrap()
        .values()
        .next()
        .unwrap()
        .expires;
    assert!(
        expires > SystemTime::now() + Duration::from_secs(3000),
        "used now"
    );
    expire(SystemTime::now());
    for scene in [&one, &two] {
        assert_eq!(status(scene, &cookie).await, OVER);
    }
    // Nor is one that has reached its age.
    let cookie = signed_in(&one, TOKEN).await;
    let age = |kept: &mut KeptSession| {
        let text: serde_json::Value = serde_json::from_str(&kept.text).unwrap();
        let began = text["began"]["secs_since_epoch"].as_u64().unwrap();
        kept.text = kept
            .text
            .replace(&began.to_string(), &(began - 12 * 3600).to_string());
    };
    records.kept.lock().unwrap().values_mut().for_each(age);
    assert_eq!(status(&two, &cookie).await, OVER);
}

//! Who has a session, for how long, and what is said of it.

use super::*;

const IDLE: Duration = Duration::from_secs(60);

fn session_of(core: &Arc<Ended>) -> Session {
    let opening = Opening {
        revision: Revision::V2025_11_25,
        client_info: Some(Json::literal(r#"{"name":"c"}"#)),
        capabilities: Json::literal(r#"{"sampling":{}}"#),
    };
    Session::new(Principal::anonymous(), opening, Arc::default(), 1, core)
}

fn session() -> Session {
    session_of(&Arc::default())
}

/// Counts the sessions that it is told have ended.
#[derive(Default)]
struct Ended(std::sync::atomic::AtomicUsize);

impl Ended {
    fn count(&self) -> usize {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Core for Ended {
    async fn handle(&self, _: fanlight_canonical::Call) -> Response {
        Response::from_result(&Json::empty_object())
    }

    async fn tool(&self, _: &str, _: &Parent) -> Option<Arc<Json>> {
        None
    }

    async fn listen(
        &self,
        listen: fanlight_canonical::Listen,
    ) -> Result<fanlight_canonical::Listening, fanlight_protocol::RpcError> {
        Ok(fanlight_canonical::Listening::new(listen.interest, ()))
    }

    fn end_session(&self, _: SessionKey) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn the_core_is_told_once_however_a_session_ends_and_not_before_its_last_call() {
    let core = Arc::new(Ended::default());
    let sessions = Sessions::new(3, IDLE);
    let open = || sessions.open(session_of(&core)).unwrap();
    let id = open();
    let using = sessions.enter(&id).unwrap();
    assert!(sessions.end(&id));
    assert_eq!(core.count(), 0);
    drop(using);
    assert_eq!(core.count(), 1);
    open();
    tokio::time::advance(IDLE).await;
    sessions.sweep(IDLE);
    assert_eq!(core.count(), 2);
    let id = open();
    tokio::time::advance(IDLE).await;
    assert!(sessions.enter(&id).is_none());
    assert_eq!(core.count(), 3);
    for _ in 0..4 {
        open();
    }
    assert_eq!(core.count(), 4);
    sessions.end_all();
    assert_eq!(core.count(), 7);
}

#[tokio::test(start_paused = true)]
async fn ids_are_long_visible_and_all_different() {
    let sessions = Sessions::new(100, IDLE);
    let mut ids: Vec<_> = (0..100).map(|_| sessions.open(session()).unwrap()).collect();
    assert!(ids.iter().all(|id| id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_graphic())));
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn idle_sessions_expire_and_used_ones_do_not() {
    let sessions = Sessions::new(10, IDLE);
    let (idle, used) = (sessions.open(session()).unwrap(), sessions.open(session()).unwrap());
    let using = sessions.enter(&used).unwrap();
    tokio::time::advance(IDLE).await;
    assert!(sessions.enter(&idle).is_none());
    assert!(!sessions.end(&idle));
    sessions.sweep(IDLE);
    drop(using);
    tokio::time::advance(IDLE / 2).await;
    drop(sessions.enter(&used).unwrap());
    tokio::time::advance(IDLE / 2).await;
    assert!(sessions.enter(&used).is_some());
    tokio::time::advance(IDLE).await;
    sessions.sweep(IDLE);
    assert!(lock(&sessions.table).is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_longest_idle_gives_way_and_a_used_one_never() {
    let sessions = Sessions::new(2, IDLE);
    let first = sessions.open(session()).unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    let second = sessions.open(session()).unwrap();
    let using_first = sessions.enter(&first).unwrap();
    let third = sessions.open(session()).unwrap();
    assert!(sessions.enter(&second).is_none());
    let using_third = sessions.enter(&third).unwrap();
    assert_eq!(sessions.open(session()), Err(OpenError::Full { limit: 2 }));
    drop((using_first, using_third));
    assert!(sessions.open(session()).is_ok());
}

#[tokio::test(start_paused = true)]
async fn ending_cancels_what_runs() {
    let sessions = Sessions::new(2, IDLE);
    let id = sessions.open(session()).unwrap();
    let using = sessions.enter(&id).unwrap();
    let stop = using.in_flight.begin(&Json::literal("1"));
    assert!(sessions.end(&id));
    stop.await;
    assert!(!sessions.end(&id));
    assert!(sessions.enter(&id).is_none());
}

#[tokio::test(start_paused = true)]
async fn the_core_learns_what_it_may() {
    let (session, fresh) = (session(), session());
    session.set_log_level(Some(LogLevel::Error));
    let context = session.context(true);
    assert_eq!(context.log_level, Some(LogLevel::Error));
    assert_eq!(context.capabilities.as_text(), r#"{"sampling":{}}"#);
    assert_ne!(context.session(), fresh.context(true).session());
    assert_eq!(context.client_info.as_ref().unwrap().as_text(), r#"{"name":"c"}"#);
    assert_ne!(context.caller, fresh.context(true).caller);
}

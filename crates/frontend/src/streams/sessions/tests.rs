//! Opening, entering and ending sessions.

use fanlight_canonical::{Endpoint, Holder, Principal};
use fanlight_protocol::Json;
use fanlight_protocol::seal::Keys;

use super::*;
use crate::session::testing::ListenCore;

const IDLE: Duration = Duration::from_secs(60);
const ANN: Holder = Holder::new(Principal::anonymous(), Endpoint::Everything);

fn in_memory(limit: usize, per_peer: usize) -> Sessions {
    let handles = HandleSeal::new(&Keys::default()).unwrap();
    Sessions::new(limit, per_peer, IDLE, Arc::new(handles))
}

fn session_of(core: &ListenCore) -> Arc<SessionStreams> {
    SessionStreams::new(core.session(), &Arc::default())
}

fn session() -> Arc<SessionStreams> {
    session_of(&ListenCore::refusing())
}

fn enter(sessions: &Sessions, id: &str) -> Option<ActiveSession> {
    sessions.enter(id, &ANN).ok()
}

#[tokio::test]
async fn session_does_not_exist_for_another_principal() {
    let [ann, bob] = ["ann", "bob"].map(|name| Holder::from(Principal::new("issuer", name)));
    let sessions = in_memory(3, 0);
    let core = ListenCore::refusing();
    let id = sessions
        .open(SessionStreams::new(
            core.session_of(ann.principal().clone()),
            &Arc::default(),
        ))
        .unwrap();
    assert_eq!(sessions.enter(&id, &bob).err(), Some(Keeper::Nobody));
    assert_eq!(sessions.end(&id, &bob), Err(Keeper::Nobody));
    assert!(sessions.enter(&id, &ann).is_ok() && sessions.end(&id, &ann).is_ok());
    assert_eq!(sessions.enter(&id, &ann).err(), Some(Keeper::ThisRun));
}

#[tokio::test(start_paused = true)]
async fn session_end_is_reported_once_after_its_last_call() {
    let core = ListenCore::refusing();
    let sessions = in_memory(3, 0);
    let open = || sessions.open(session_of(&core)).unwrap();
    let id = open();
    let using = enter(&sessions, &id).unwrap();
    assert!(sessions.end(&id, &ANN).is_ok());
    assert_eq!(core.ended(), 0);
    drop(using);
    assert_eq!(core.ended(), 1);
    open();
    tokio::time::advance(IDLE).await;
    sessions.sweep(IDLE);
    assert_eq!(core.ended(), 2);
    let id = open();
    tokio::time::advance(IDLE).await;
    assert!(enter(&sessions, &id).is_none());
    assert_eq!(core.ended(), 3);
    for _ in 0..4 {
        open();
    }
    assert_eq!(core.ended(), 4);
    sessions.end_all();
    assert_eq!(core.ended(), 7);
}

#[tokio::test(start_paused = true)]
async fn session_ids_are_of_one_size_visible_and_unique() {
    let sessions = in_memory(100, 0);
    let mut ids: Vec<_> = (0..100)
        .map(|_| sessions.open(session()).unwrap())
        .collect();
    assert!(
        ids.iter()
            .all(|id| id.len() == 71 && id.bytes().all(|byte| byte.is_ascii_graphic()))
    );
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn session_expires_after_idle_timeout_unless_in_use() {
    let sessions = in_memory(10, 0);
    let (idle, used) = (
        sessions.open(session()).unwrap(),
        sessions.open(session()).unwrap(),
    );
    let using = enter(&sessions, &used).unwrap();
    tokio::time::advance(IDLE).await;
    assert!(enter(&sessions, &idle).is_none());
    assert!(sessions.end(&idle, &ANN).is_err());
    sessions.sweep(IDLE);
    drop(using);
    tokio::time::advance(IDLE / 2).await;
    drop(enter(&sessions, &used).unwrap());
    tokio::time::advance(IDLE / 2).await;
    assert!(enter(&sessions, &used).is_some());
    tokio::time::advance(IDLE).await;
    sessions.sweep(IDLE);
    assert!(sessions.table.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn new_session_replaces_the_one_idle_longest_but_none_in_use() {
    let sessions = in_memory(2, 0);
    let first = sessions.open(session()).unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    let second = sessions.open(session()).unwrap();
    let using_first = enter(&sessions, &first).unwrap();
    let third = sessions.open(session()).unwrap();
    assert!(enter(&sessions, &second).is_none());
    let using_third = enter(&sessions, &third).unwrap();
    assert_eq!(sessions.open(session()), Err(OpenError::Full { limit: 2 }));
    drop((using_first, using_third));
    assert!(sessions.open(session()).is_ok());
}

#[tokio::test(start_paused = true)]
async fn ended_session_cancels_its_requests() {
    let sessions = in_memory(2, 0);
    let id = sessions.open(session()).unwrap();
    let using = enter(&sessions, &id).unwrap();
    let cancellation = using.session.running.begin(&Json::literal("1"));
    assert!(sessions.end(&id, &ANN).is_ok());
    cancellation.await;
    assert!(sessions.end(&id, &ANN).is_err());
    assert!(enter(&sessions, &id).is_none());
}

#[tokio::test(start_paused = true)]
async fn peer_with_most_sessions_loses_first() {
    let core = ListenCore::refusing();
    let sessions = in_memory(4, 0);
    let open_from = async |last| {
        tokio::time::advance(Duration::from_secs(1)).await;
        sessions
            .open(SessionStreams::new(
                core.session_from(last),
                &Arc::default(),
            ))
            .unwrap()
    };
    let quiet = open_from(1).await;
    let noisy = [open_from(2).await, open_from(2).await, open_from(2).await];
    let new = open_from(3).await;
    assert!(
        enter(&sessions, &noisy[0]).is_none(),
        "the oldest of the peer that has most"
    );
    let newer = open_from(2).await;
    assert!(
        enter(&sessions, &noisy[1]).is_none(),
        "a peer loses its own to its own"
    );
    for kept in [&quiet, &noisy[2], &new, &newer] {
        assert!(enter(&sessions, kept).is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn peer_whose_sessions_are_all_in_use_takes_none_from_peers_with_fewer() {
    let core = ListenCore::refusing();
    let sessions = in_memory(3, 0);
    let from = |last| SessionStreams::new(core.session_from(last), &Arc::default());
    let quiet = sessions.open(from(1)).unwrap();
    let noisy = [
        sessions.open(from(2)).unwrap(),
        sessions.open(from(2)).unwrap(),
    ];
    let _using = noisy.each_ref().map(|id| enter(&sessions, id).unwrap());
    assert_eq!(
        sessions.open(from(2)).unwrap_err(),
        OpenError::Full { limit: 3 }
    );
    assert!(enter(&sessions, &quiet).is_some());
}

#[tokio::test(start_paused = true)]
async fn session_beyond_the_quota_of_its_peer_ends_no_other() {
    let core = ListenCore::refusing();
    let sessions = in_memory(2, 1);
    let from = |last| SessionStreams::new(core.session_from(last), &Arc::default());
    let used = sessions.open(from(1)).unwrap();
    sessions.open(from(2)).unwrap();
    let _using = enter(&sessions, &used).unwrap();
    tokio::time::advance(IDLE).await;
    assert_eq!(sessions.open(from(1)), Err(OpenError::Full { limit: 1 }));
    // The refused session itself has ended.
    assert_eq!(core.ended(), 1);
}

#[tokio::test(start_paused = true)]
async fn quota_of_a_peer_bounds_its_sessions() {
    let core = ListenCore::refusing();
    let sessions = in_memory(10, 2);
    let open_from = |last| {
        sessions.open(SessionStreams::new(
            core.session_from(last),
            &Arc::default(),
        ))
    };
    let (other, first, second) = (
        open_from(1).unwrap(),
        open_from(2).unwrap(),
        open_from(2).unwrap(),
    );
    tokio::time::advance(Duration::from_secs(1)).await;
    let _using = enter(&sessions, &second).unwrap();
    let third = open_from(2).unwrap();
    assert!(enter(&sessions, &first).is_none());
    let _also = enter(&sessions, &third).unwrap();
    assert_eq!(open_from(2).unwrap_err(), OpenError::Full { limit: 2 });
    assert!(enter(&sessions, &other).is_some());
}

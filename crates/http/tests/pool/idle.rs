//! Reuse and end of connections.

use std::pin::pin;
use std::task::Poll;

use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::*;

/// Answers one request; the connection is then idle.
async fn answered(listener: &TcpListener) -> TcpStream {
    let mut stream = listener.accept().await.unwrap().0;
    read_request(&mut stream).await;
    stream.write_all(OK).await.unwrap();
    stream
}

/// Waits until the client has closed the connection; it must not send anything more.
async fn closed(stream: &mut TcpStream) {
    assert_eq!(
        stream.read(&mut [0; 64]).await.unwrap_or_default(),
        0,
        "there is a request on it"
    );
}

async fn called(client: &PooledClient, target: &SocketAddr) {
    assert_eq!(body_of(client.execute(post(target)).await).await, "ok");
}

/// Ends a connection so that the other side sees a reset.
fn reset(stream: TcpStream) {
    stream.set_zero_linger().unwrap();
    drop(stream);
}

#[tokio::test]
async fn idle_connection_is_closed_when_the_server_closes_it() {
    let (listener, target, client) = served().await;
    let (mut stream, ()) = tokio::join!(answered(&listener), called(&client, &target));
    // Closes one half; the server could still read.
    stream.shutdown().await.unwrap();
    closed(&mut stream).await;
}

#[tokio::test]
async fn suspected_connections_are_not_reused() {
    let (listener, target, client) = served().await;
    // Two concurrent requests, so that there are two connections.
    let both = async {
        let (mut first, mut second) = (
            listener.accept().await.unwrap().0,
            listener.accept().await.unwrap().0,
        );
        for stream in [&mut first, &mut second] {
            read_request(stream).await;
        }
        for stream in [&mut first, &mut second] {
            stream.write_all(OK).await.unwrap();
        }
        (first, second)
    };
    let ((mut first, mut second), (), ()) =
        tokio::join!(both, called(&client, &target), called(&client, &target));
    client.close_idle();
    closed(&mut first).await;
    closed(&mut second).await;
    tokio::join!(answered(&listener), called(&client, &target));
}

#[tokio::test]
async fn connection_in_use_survives_a_suspicion() {
    let (listener, target, client) = served().await;
    let server = async {
        let mut stream = listener.accept().await.unwrap().0;
        read_request(&mut stream).await;
        client.close_idle();
        stream.write_all(OK).await.unwrap();
        // It has answered since, so it is reused.
        read_request(&mut stream).await;
        stream.write_all(OK).await.unwrap();
    };
    let requests = async {
        called(&client, &target).await;
        called(&client, &target).await;
    };
    tokio::join!(server, requests);
}

#[tokio::test]
async fn idle_connection_that_ended_or_got_bytes_is_not_reused() {
    enum End {
        Half,
        Reset,
        Unasked(&'static [u8]),
    }
    for end in [End::Half, End::Reset, End::Unasked(OK), End::Unasked(b"!")] {
        let (listener, target, client) = served().await;
        let (mut stream, ()) = tokio::join!(answered(&listener), called(&client, &target));
        // The client has not run since, so this arrives before the reaper can notice.
        let rest = match end {
            End::Half => {
                stream.shutdown().await.unwrap();
                Some(stream)
            }
            End::Reset => {
                reset(stream);
                None
            }
            End::Unasked(bytes) => {
                stream.write_all(bytes).await.unwrap();
                Some(stream)
            }
        };
        // When this arrives at the client, the other connection's end has arrived, too.
        let beside = async {
            let mut beside = TcpStream::connect(listener.local_addr().unwrap())
                .await
                .unwrap();
            assert_eq!(beside.read_u8().await.unwrap(), b'!');
        };
        let server = async {
            listener
                .accept()
                .await
                .unwrap()
                .0
                .write_all(b"!")
                .await
                .unwrap();
        };
        tokio::join!(beside, server);
        tokio::join!(answered(&listener), called(&client, &target));
        if let Some(mut stream) = rest {
            closed(&mut stream).await;
        }
    }
}

#[tokio::test]
async fn head_that_breaks_off_is_an_error_without_a_second_attempt() {
    for (head, is_reset) in [
        ("", true),
        ("HTTP/1.1 20", false),
        ("HTTP/1.1 200 OK\r\ncontent-le", true),
    ] {
        let (listener, target, client) = served().await;
        let server = async {
            let mut stream = answered(&listener).await;
            // On a reused connection, a client could be tempted to repeat the request.
            read_request(&mut stream).await;
            stream.write_all(head.as_bytes()).await.unwrap();
            if is_reset {
                reset(stream);
            } else {
                drop(stream);
            }
            answered(&listener).await;
        };
        let calls = async {
            called(&client, &target).await;
            let error = client.execute(post(&target)).await.err().unwrap();
            assert!(!is_connect(&error), "{head:?}: {}", reason(&error));
        };
        tokio::select! {
            _ = server => panic!("{head:?}: sent a second time"),
            () = calls => {}
        }
    }
}

#[tokio::test]
async fn head_may_arrive_byte_by_byte() {
    let (listener, target, client) = served().await;
    let server = async {
        let mut stream = listener.accept().await.unwrap().0;
        stream.set_nodelay(true).unwrap();
        for _ in 0..2 {
            read_request(&mut stream).await;
            for byte in OK {
                stream.write_all(&[*byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
        }
    };
    let calls = async {
        called(&client, &target).await;
        called(&client, &target).await;
    };
    tokio::join!(server, calls);
}

#[tokio::test]
async fn dropped_request_closes_its_connection() {
    let (listener, target, client) = served().await;
    let mut stream = {
        let mut executing = pin!(client.execute(post(&target)));
        let server = async {
            let mut stream = listener.accept().await.unwrap().0;
            read_request(&mut stream).await;
            stream
        };
        tokio::select! {
            stream = server => stream,
            _ = executing.as_mut() => panic!("nobody has answered"),
        }
    };
    closed(&mut stream).await;
}

#[tokio::test]
async fn dropped_body_closes_its_connection_unless_it_has_arrived() {
    let (listener, target, client) = served().await;
    let server = async {
        let mut stream = answered(&listener).await;
        read_request(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok")
            .await
            .unwrap();
        closed(&mut stream).await;
    };
    let calls = async {
        drop(client.execute(post(&target)).await.unwrap());
        drop(client.execute(post(&target)).await.unwrap());
    };
    tokio::join!(server, calls);
}

#[tokio::test]
async fn idle_connections_stay_within_their_limit() {
    let (listener, target, client) = served().await;
    let calls = async {
        let all = (0..SETTINGS.max_idle + 1).map(|_| called(&client, &target));
        futures_util::future::join_all(all).await;
    };
    let server = async {
        let mut streams = Vec::new();
        for _ in 0..SETTINGS.max_idle + 1 {
            streams.push(listener.accept().await.unwrap().0);
        }
        for stream in &mut streams {
            read_request(stream).await;
        }
        for stream in &mut streams {
            stream.write_all(OK).await.unwrap();
        }
        streams
    };
    let (mut streams, ()) = tokio::join!(server, calls);
    futures_util::future::select_all(
        streams
            .iter_mut()
            .map(|stream| closed(stream).boxed_local()),
    )
    .await;
    // A worker's share depends on the number of workers that concurrent tests have entered.
    let ended = streams
        .iter_mut()
        .filter_map(|stream| closed(stream).now_or_never())
        .count();
    assert!(ended < streams.len(), "none is kept");
}

#[tokio::test(start_paused = true)]
async fn connection_idle_for_long_is_closed() {
    let (listener, target, client) = served().await;
    let (mut stream, ()) = tokio::join!(answered(&listener), called(&client, &target));
    let began = Instant::now();
    closed(&mut stream).await;
    let idle = began.elapsed().as_secs();
    assert!((45..=90).contains(&idle), "{idle}");
}

#[tokio::test]
async fn waiting_request_gets_the_first_free_connection() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let target = listener.local_addr().unwrap();
    let client = client(&target);
    let mut first = pin!(client.execute(post(&target)));
    let mut stream = tokio::select! {
        accepted = listener.accept() => accepted.unwrap().0,
        _ = first.as_mut() => panic!("nobody has answered"),
    };
    // From here on the listener accepts no connection.
    let mut queue = Vec::new();
    tokio::time::pause();
    while let Ok(connected) = tokio::time::timeout(
        Duration::from_secs(1),
        TcpStream::connect(listener.local_addr().unwrap()),
    )
    .await
    {
        queue.push(connected.unwrap());
        assert!(queue.len() < 64, "the queue does not fill");
    }
    tokio::time::resume();
    let mut second = pin!(client.execute(post(&target)));
    // The first poll only yields.
    for _ in 0..2 {
        assert!(poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx).is_pending())).await);
    }
    let server = async {
        for _ in 0..2 {
            read_request(&mut stream).await;
            stream.write_all(OK).await.unwrap();
        }
    };
    let calls = async {
        assert_eq!(body_of(first.await).await, "ok");
        assert_eq!(body_of(second.await).await, "ok");
    };
    tokio::join!(server, calls);
}

#[test]
fn connections_end_with_their_runtime() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (listener, target, client) = {
        let first = runtime();
        let (listener, target, client) = first.block_on(async {
            let (listener, target, client) = served().await;
            tokio::join!(answered(&listener), called(&client, &target));
            (listener.into_std().unwrap(), target, client)
        });
        (listener, target, client)
    };
    runtime().block_on(async {
        let listener = TcpListener::from_std(listener).unwrap();
        tokio::join!(answered(&listener), called(&client, &target));
    });
}

#[tokio::test(start_paused = true)]
async fn idle_connections_of_a_burst_are_closed_soon_except_for_a_few() {
    const BURST: usize = 60;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let uri = format!("http://{target}/mcp").parse().unwrap();
    let client = PooledClient::new(
        uri,
        PoolSettings {
            max_idle: 100 * BURST,
            ..SETTINGS
        },
    );
    let server = async {
        let mut streams = Vec::new();
        for _ in 0..BURST {
            streams.push(listener.accept().await.unwrap().0);
        }
        for stream in &mut streams {
            read_request(stream).await;
        }
        for stream in &mut streams {
            stream.write_all(OK).await.unwrap();
        }
        streams
    };
    let calls = futures_util::future::join_all((0..BURST).map(|_| called(&client, &target)));
    let (mut streams, _) = tokio::join!(server, calls);
    let began = Instant::now();
    let mut ended = 0;
    while ended < BURST - 16 {
        let (_, at, _) = futures_util::future::select_all(
            streams
                .iter_mut()
                .map(|stream| closed(stream).boxed_local()),
        )
        .await;
        drop(streams.swap_remove(at));
        ended += 1;
    }
    assert!(began.elapsed().as_secs() <= 10, "{:?}", began.elapsed());
    let mut last = futures_util::future::select_all(
        streams
            .iter_mut()
            .map(|stream| closed(stream).boxed_local()),
    );
    assert!(
        tokio::time::timeout(Duration::from_secs(30), &mut last)
            .await
            .is_err(),
        "the few are kept"
    );
}

#[tokio::test]
async fn connection_that_the_server_is_about_to_close_is_not_reused() {
    for (announced, idle, is_reused) in [
        ("timeout=5", 3, true),
        ("timeout=5, max=100", 4, false),
        ("Max=1, Timeout=5", 9, false),
        ("timeout=1", 0, false),
        ("timeout=99999999999", 9, true),
        ("max=100", 9, true),
    ] {
        let (listener, target, client) = served().await;
        let answer =
            format!("HTTP/1.1 200 OK\r\nkeep-alive: {announced}\r\ncontent-length: 2\r\n\r\nok");
        let first = async {
            let mut stream = listener.accept().await.unwrap().0;
            read_request(&mut stream).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream
        };
        let (mut stream, ()) = tokio::join!(first, called(&client, &target));
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(idle)).await;
        tokio::time::resume();
        let second = async {
            if is_reused {
                read_request(&mut stream).await;
                stream.write_all(OK).await.unwrap();
            } else {
                answered(&listener).await;
                closed(&mut stream).await;
            }
        };
        tokio::join!(second, called(&client, &target));
    }
}

//! Long event streams, which are read without hyper from their first byte.

use super::*;

const EVENT: &[u8] = b"data: {}\n\n";

fn events(head: &str, body: &[u8]) -> Vec<u8> {
    [
        format!("HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\n{head}\r\n")
            .as_bytes(),
        body,
    ]
    .concat()
}

fn chunked(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// Answers each connection's requests with this response in pieces of `cut` bytes, and closes the
/// connection if `ends`. Returns the number of connections that these requests used.
async fn serve(
    listener: &TcpListener,
    response: &[u8],
    cut: usize,
    ends: bool,
    requests: usize,
) -> usize {
    let (mut connections, mut served) = (0, 0);
    while served < requests {
        let mut stream = listener.accept().await.unwrap().0;
        stream.set_nodelay(true).unwrap();
        connections += 1;
        loop {
            let mut text = Vec::new();
            while !text.ends_with(b"\r\n\r\n{}") {
                if stream.read_buf(&mut text).await.unwrap_or_default() == 0 {
                    break;
                }
            }
            if text.is_empty() {
                break;
            }
            for piece in response.chunks(cut) {
                stream.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            served += 1;
            if ends || served == requests {
                break;
            }
        }
    }
    connections
}

/// Sends two requests in turn; returns their bodies.
async fn bodies(client: &PooledClient, target: &SocketAddr) -> Vec<Result<Bytes, Error>> {
    let mut bodies = Vec::new();
    for _ in 0..2 {
        let mut response = client.execute_lasting(post(target)).await.unwrap();
        let mut whole = Vec::new();
        bodies.push(loop {
            match chunk(&mut response).await {
                Ok(Some(chunk)) => whole.extend_from_slice(&chunk),
                Ok(None) => break Ok(whole.into()),
                Err(error) => break Err(error),
            }
        });
    }
    bodies
}

#[tokio::test]
async fn event_stream_is_read_whole_and_its_connection_reused() {
    let twice = [EVENT, EVENT].concat();
    let in_chunks = [chunked(EVENT), chunked(EVENT), b"0\r\n\r\n".to_vec()].concat();
    let length = format!("Content-Length: {}\r\n", twice.len());
    let chunked_head = "Transfer-Encoding: chunked\r\n";
    let closing = format!("{chunked_head}Connection: close\r\n");
    let interim = [
        b"HTTP/1.1 103 Early Hints\r\nContent-Type: text/event-stream\r\n\r\n",
        &events(&length, &twice)[..],
    ]
    .concat();
    let other = events(chunked_head, &in_chunks);
    let other = String::from_utf8(other)
        .unwrap()
        .replace("Text/Event-Stream", "text/plain");
    for (response, ends, connections) in [
        (events(chunked_head, &in_chunks), false, 1),
        (events(&length, &twice), false, 1),
        (interim, false, 1),
        (other.into_bytes(), false, 1),
        (events(&closing, &in_chunks), true, 2),
        (events("", &twice), true, 2),
    ] {
        // Complete, and in pieces that cut the head and the chunks. With the smallest pieces, hyper
        // reads it.
        for cut in [usize::MAX, 40, 3] {
            let (listener, target, client) = served().await;
            let (found, bodies) = tokio::join!(
                serve(&listener, &response, cut, ends, 2),
                bodies(&client, &target)
            );
            for body in bodies {
                assert_eq!(
                    body.unwrap(),
                    twice,
                    "{}",
                    String::from_utf8_lossy(&response)
                );
            }
            assert_eq!(found, connections, "{}", String::from_utf8_lossy(&response));
        }
    }
}

#[tokio::test]
async fn event_stream_that_breaks_off_or_is_malformed_is_an_error_and_its_connection_is_not_reused()
{
    let head = "Transfer-Encoding: chunked\r\n";
    let broken: [Vec<u8>; 4] = [
        events(head, &chunked(EVENT)),
        events(head, &[&chunked(EVENT)[..], b"x\r\n"].concat()),
        events(head, &[&chunked(EVENT)[..], b"\r\n0\r\n\r\n"].concat()),
        events("Content-Length: 100\r\n", EVENT),
    ];
    for response in broken {
        let (listener, target, client) = served().await;
        let (connections, bodies) = tokio::join!(
            serve(&listener, &response, usize::MAX, true, 2),
            bodies(&client, &target)
        );
        assert!(
            bodies.iter().all(Result::is_err),
            "{}",
            String::from_utf8_lossy(&response)
        );
        assert_eq!(connections, 2);
    }
}

#[tokio::test]
async fn bytes_after_an_event_stream_are_of_no_other_response() {
    let surplus = [
        &events("Transfer-Encoding: chunked\r\n", b"0\r\n\r\n")[..],
        &events("Content-Length: 5\r\n", b"FIRST"),
    ]
    .concat();
    for cut in [usize::MAX, 60] {
        let (listener, target, client) = served().await;
        let (connections, bodies) = tokio::join!(
            serve(&listener, &surplus, cut, false, 2),
            bodies(&client, &target)
        );
        assert!(bodies.into_iter().all(|body| body.unwrap().is_empty()));
        assert_eq!(connections, 2);
    }
}

/// A server may send the next response early. On a withholding connection, these bytes must not
/// become the response to a request that had not been written.
#[tokio::test]
async fn bytes_before_the_request_are_of_no_response() {
    let (listener, target, client) = served().await;
    let server = async {
        let mut stream = listener.accept().await.unwrap().0;
        read_request(&mut stream).await;
        stream.write_all(OK).await.unwrap();
        // When this arrives at the client, the bytes on the other connection have arrived, too.
        stream
            .write_all(&events("Content-Length: 5\r\n", b"FIRST"))
            .await
            .unwrap();
        listener
            .accept()
            .await
            .unwrap()
            .0
            .write_all(b"!")
            .await
            .unwrap();
        let mut next = listener.accept().await.unwrap().0;
        read_request(&mut next).await;
        next.write_all(&events("Content-Length: 6\r\n", b"second"))
            .await
            .unwrap();
        let mut first = Vec::new();
        stream.read_to_end(&mut first).await.unwrap_or_default();
        first
    };
    let calls = async {
        assert_eq!(
            body_of(client.execute_lasting(post(&target)).await).await,
            "ok"
        );
        let mut beside = TcpStream::connect(target).await.unwrap();
        beside.read_exact(&mut [0]).await.unwrap();
        assert_eq!(
            body_of(client.execute_lasting(post(&target)).await).await,
            "second"
        );
    };
    let (written_to_first, ()) = tokio::join!(server, calls);
    assert!(
        written_to_first.is_empty(),
        "a request was written to the connection"
    );
}

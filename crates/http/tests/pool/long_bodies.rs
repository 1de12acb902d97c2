//! Long bodies, which are read from the socket without hyper.

use super::*;

const LENGTH: usize = 1 << 20;

fn body() -> Vec<u8> {
    (0..LENGTH).map(|index| (index % 251) as u8).collect()
}

fn head(more: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n{more}\r\n")
}

/// Reads a body directly as far as possible; also returns whether any part was read directly.
async fn read(response: &mut Response<ResponseBody>) -> Result<(Bytes, bool), Error> {
    let headers = response.headers().clone();
    let mut whole = BodyBuffer::new(LENGTH, 0);
    let first = chunk(response).await?.unwrap_or_default();
    whole.extend_from_slice(&first);
    let mut directly = false;
    loop {
        match response.body_mut().read_into(&headers, &mut whole).await? {
            Some(0) => return Ok((whole.freeze(), directly)),
            Some(_) => directly = true,
            None => match chunk(response).await? {
                Some(chunk) => whole.extend_from_slice(&chunk),
                None => return Ok((whole.freeze(), directly)),
            },
        }
    }
}

/// Answers two requests in the same way; returns the number of connections.
async fn serve(listener: &TcpListener, answer: &[u8]) -> usize {
    let mut connections = 0;
    let mut answered = 0;
    while answered < 2 {
        let mut stream = listener.accept().await.unwrap().0;
        connections += 1;
        let mut text = Vec::new();
        while answered < 2 {
            text.clear();
            while !text.ends_with(b"{}") {
                if stream.read_buf(&mut text).await.unwrap_or_default() == 0 {
                    break;
                }
            }
            if text.is_empty() {
                break;
            }
            stream.write_all(answer).await.unwrap();
            answered += 1;
        }
    }
    connections
}

#[tokio::test]
async fn long_body_is_read_directly_and_its_connection_reused() {
    let closing = [head("Connection: x, Close\r\n").into_bytes(), body()].concat();
    let old = [head("").replace("1.1", "1.0").into_bytes(), body()].concat();
    let lasting = [head("").into_bytes(), body()].concat();
    for (answer, connections) in [(lasting, 1), (closing, 2), (old, 2)] {
        let (listener, target, client) = served().await;
        let calls = async {
            for _ in 0..2 {
                let mut response = client.execute(post(&target)).await.unwrap();
                let (whole, directly) = read(&mut response).await.unwrap();
                assert!(directly);
                assert!(whole == body());
            }
        };
        let (used, ()) = tokio::join!(serve(&listener, &answer), calls);
        assert_eq!(used, connections);
    }
}

#[tokio::test]
async fn body_of_unknown_length_or_of_an_unfinished_request_is_read_by_hyper() {
    let long = b"{}".repeat(8 << 10);
    let chunked =
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{LENGTH:x}\r\n").into_bytes();
    let chunked = [chunked, body(), b"\r\n0\r\n\r\n".to_vec()].concat();
    let measured = [head("").into_bytes(), body()].concat();
    for (request, answer) in [
        (Bytes::from(long), measured),
        (Bytes::from_static(b"{}"), chunked),
    ] {
        let (listener, target, client) = served().await;
        let calls = async {
            for _ in 0..2 {
                let mut response = client
                    .execute(with_body(&target, request.clone()))
                    .await
                    .unwrap();
                let (whole, directly) = read(&mut response).await.unwrap();
                assert!(!directly);
                assert!(whole == body());
            }
        };
        let server = async {
            let mut stream = listener.accept().await.unwrap().0;
            for _ in 0..2 {
                let mut text = Vec::new();
                while !text.windows(4).any(|end| end == b"\r\n\r\n") || !text.ends_with(&request) {
                    assert_ne!(stream.read_buf(&mut text).await.unwrap(), 0);
                }
                stream.write_all(&answer).await.unwrap();
            }
        };
        tokio::join!(server, calls);
    }
}

#[tokio::test]
async fn long_body_that_breaks_off_is_an_error() {
    let (listener, target, client) = served().await;
    let server = async {
        let mut stream = listener.accept().await.unwrap().0;
        read_request(&mut stream).await;
        stream.write_all(head("").as_bytes()).await.unwrap();
        stream.write_all(&body()[..LENGTH - 1]).await.unwrap();
    };
    let calls = async {
        let mut response = client.execute(post(&target)).await.unwrap();
        let error = read(&mut response).await.err().unwrap();
        assert!(!is_connect(&error));
        assert!(reason(&error).contains("end of file"), "{}", reason(&error));
    };
    tokio::join!(server, calls);
}

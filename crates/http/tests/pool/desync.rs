//! One response of arbitrary bytes in arbitrary pieces, followed by a second request: the second
//! response must not contain a byte of the first. Also the body of
//! `fuzz/fuzz_targets/http_pool.rs`.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fanlight_http::client::{BodyBuffer, PoolSettings, PooledClient, ResponseBody};
use http::{Request, Response};
use http_body_util::Full;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;

/// The test case that the input describes.
struct Plan {
    /// Whether the first response is written before the body of its request is read.
    early: bool,
    /// Whether the server closes its half of the connection after the first response.
    closes: bool,
    /// Whether the first response may be a long event stream.
    may_last: bool,
    reading: Reading,
    request: Bytes,
    response: Vec<u8>,
    /// The sizes of the pieces, in turn.
    cuts: Vec<usize>,
    /// Set by the server if a request does not begin where the last one ended.
    is_mixed_up: AtomicBool,
}

#[derive(Clone, Copy)]
enum Reading {
    Directly,
    ByChunks,
    FirstChunk,
    HeadOnly,
}

/// Runs one input. Panics if it mixes up the two requests.
pub(crate) fn run(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(converse(Plan::new(data)));
}

impl Plan {
    fn new(data: &[u8]) -> Self {
        let byte = |at: usize| data.get(at).copied().unwrap_or_default();
        let flags = byte(0);
        let rest = data.get(8..).unwrap_or_default();
        let body_len = usize::from(byte(1)) * 1500;
        // The announced length is often correct, or nearly.
        let announced = match byte(2) % 4 {
            0 => body_len.saturating_sub(usize::from(byte(3))),
            1 => body_len + usize::from(byte(3)),
            _ => body_len,
        };
        let may_last = flags & 64 != 0;
        let ok = if may_last {
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream"
        } else {
            "HTTP/1.1 200 OK"
        };
        let mut response: Vec<u8> = match byte(4) % 6 {
            0 => Vec::new(),
            1 => format!("{ok}\r\ntransfer-encoding: chunked\r\n\r\n").into(),
            2 => {
                format!("HTTP/1.1 100 Continue\r\n\r\n{ok}\r\ncontent-length: {announced}\r\n\r\n")
                    .into()
            }
            3 => format!("{ok}\r\ncontent-length: {announced}\r\nconnection: close\r\n\r\n").into(),
            4 => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
            _ => format!("{ok}\r\ncontent-length: {announced}\r\n\r\n").into(),
        };
        if byte(4) % 6 == 1 && body_len > 0 {
            response.extend(format!("{body_len:x}\r\n").into_bytes());
        }
        response.resize(response.len() + body_len, b'F');
        if byte(4) % 6 == 1 {
            response.extend(if body_len > 0 {
                &b"\r\n0\r\n\r\n"[..]
            } else {
                b"0\r\n\r\n"
            });
        }
        if flags & 4 != 0 {
            response.extend(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nFIRST");
        }
        response.extend(rest);
        Self {
            early: flags & 1 != 0,
            closes: flags & 2 != 0,
            may_last,
            reading: match flags >> 3 & 3 {
                0 => Reading::HeadOnly,
                1 => Reading::FirstChunk,
                2 => Reading::ByChunks,
                _ => Reading::Directly,
            },
            request: Bytes::from(vec![
                b'1';
                if flags & 32 != 0 {
                    2 << 20
                } else {
                    usize::from(byte(5)) * 40
                }
            ]),
            response,
            cuts: [6, 7]
                .map(|at| 1 + usize::from(byte(at)) * usize::from(byte(at)))
                .to_vec(),
            is_mixed_up: AtomicBool::new(false),
        }
    }
}

async fn converse(plan: Plan) {
    static TOKEN: AtomicU64 = AtomicU64::new(0x5ec0_4d00);
    let token = format!("{:x}", TOKEN.fetch_add(1, Ordering::Relaxed));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (plan, written) = (Arc::new(plan), Arc::new(Notify::new()));
    let server = {
        let (plan, written, token) = (Arc::clone(&plan), Arc::clone(&written), token.clone());
        tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (plan, written, token) =
                    (Arc::clone(&plan), Arc::clone(&written), token.clone());
                connections.spawn(async move { serve(stream, &plan, &written, &token).await });
            }
        })
    };
    let time = Duration::from_secs(5);
    let settings = PoolSettings {
        connect_timeout: time,
        idle_timeout: time,
        max_idle: 2,
        probes: fanlight_http::client::TcpProbes {
            interval: time,
            unacknowledged: time,
        },
    };
    let client = PooledClient::new(format!("http://{address}/").parse().unwrap(), settings);
    let first = async {
        let request = request(&address, "1", plan.request.clone());
        let response = if plan.may_last {
            client.execute_lasting(request)
        } else {
            client.execute(request)
        };
        if let Ok(mut response) = response.await {
            read(&mut response, plan.reading).await;
        }
    };
    {
        let mut first = std::pin::pin!(first);
        tokio::select! {
            () = &mut first => {}
            () = written.notified() => {
                // The rest may never come.
                let _ = timeout(Duration::from_millis(2), &mut first).await;
                written.notify_one();
            }
        }
    }
    written.notified().await;
    let second = async {
        let mut response = client
            .execute(request(&address, "2", Bytes::new()))
            .await
            .ok()?;
        let found = response
            .headers()
            .get("x-token")
            .and_then(|token| token.to_str().ok())
            .map(str::to_owned);
        let mut body = Vec::new();
        while let Some(chunk) = poll_fn(|cx| response.body_mut().poll_chunk(cx))
            .await
            .ok()?
        {
            body.extend_from_slice(&chunk);
        }
        Some((found, body))
    };
    let outcome = timeout(Duration::from_secs(10), second)
        .await
        .expect("the second request gets no response");
    if let Some((found, body)) = outcome {
        assert_eq!(
            (found.as_deref(), &body[..]),
            (Some(&token[..]), &b"second"[..]),
            "of the first response"
        );
    }
    assert!(
        !plan.is_mixed_up.load(Ordering::Relaxed),
        "a request within another"
    );
    server.abort();
}

fn request(address: &SocketAddr, number: &str, body: Bytes) -> Request<Full<Bytes>> {
    let request = Request::post("/mcp")
        .header("host", address.to_string())
        .header("x-request", number);
    request.body(Full::new(body)).unwrap()
}

async fn read(response: &mut Response<ResponseBody>, reading: Reading) {
    let headers = response.headers().clone();
    let mut buffer = BodyBuffer::new(0, 0);
    loop {
        match reading {
            Reading::HeadOnly => return,
            Reading::Directly => match response.body_mut().read_into(&headers, &mut buffer).await {
                Ok(Some(0)) | Err(_) => return,
                Ok(Some(_)) => continue,
                Ok(None) => {}
            },
            Reading::ByChunks | Reading::FirstChunk => {}
        }
        match poll_fn(|cx| response.body_mut().poll_chunk(cx)).await {
            Ok(Some(_)) if !matches!(reading, Reading::FirstChunk) => {}
            _ => return,
        }
    }
}

/// Serves one connection. Notifies `written` once the whole first response has been written or
/// cannot be.
async fn serve(mut stream: TcpStream, plan: &Plan, written: &Notify, token: &str) {
    stream.set_nodelay(true).unwrap();
    let mut input = Vec::new();
    loop {
        let head_len = loop {
            if let Some(at) = input.windows(4).position(|end| end == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut input).await.unwrap_or_default() == 0 {
                return;
            }
        };
        let head = String::from_utf8_lossy(&input[..head_len]).into_owned();
        input.drain(..head_len);
        if !head.starts_with("POST /mcp HTTP/1.1\r\n") {
            return plan.is_mixed_up.store(true, Ordering::Relaxed);
        }
        let body_len = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .unwrap_or("0");
        let body_len: usize = body_len.parse().unwrap();
        let is_first = head.contains("x-request: 1\r\n");
        if is_first && plan.early {
            write_first(&mut stream, plan, written).await;
        }
        while input.len() < body_len {
            if stream.read_buf(&mut input).await.unwrap_or_default() == 0 {
                return;
            }
        }
        input.drain(..body_len);
        if is_first && !plan.early {
            write_first(&mut stream, plan, written).await;
        } else if !is_first {
            let response =
                format!("HTTP/1.1 200 OK\r\nx-token: {token}\r\ncontent-length: 6\r\n\r\nsecond");
            let _ = stream.write_all(response.as_bytes()).await;
        }
    }
}

async fn write_first(stream: &mut TcpStream, plan: &Plan, written: &Notify) {
    let (mut rest, mut cuts) = (&plan.response[..], plan.cuts.iter().cycle());
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
        if stream.write_all(piece).await.is_err() {
            break;
        }
        rest = later;
        if plan.response.len() < 10_000 || piece.len() > 1000 {
            tokio::task::yield_now().await;
        }
    }
    if plan.closes {
        let _ = stream.shutdown().await;
    }
    written.notify_one();
}

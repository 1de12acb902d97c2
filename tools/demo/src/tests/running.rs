//! The running legacy server: the order of its messages, and the end of its calls.

use std::io::{self, BufReader, Read};
use std::sync::mpsc;
use std::thread;

use serde_json::Value;

use super::INITIALIZE;

/// A stream that a test feeds line by line; dropping the sender ends it.
struct Fed(mpsc::Receiver<Vec<u8>>, Vec<u8>);

impl Read for Fed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.1.is_empty() {
            match self.0.recv() {
                Ok(bytes) => self.1 = bytes,
                Err(_) => return Ok(0),
            }
        }
        let length = buffer.len().min(self.1.len());
        buffer[..length].copy_from_slice(&self.1[..length]);
        self.1.drain(..length);
        Ok(length)
    }
}

/// A running legacy server: lines go in, messages come out as they are sent.
struct Live {
    input: Option<mpsc::Sender<Vec<u8>>>,
    output: mpsc::Receiver<Value>,
    server: Option<thread::JoinHandle<io::Result<()>>>,
}

struct Out(mpsc::Sender<Value>);

impl io::Write for Out {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = self.0.send(serde_json::from_slice(line)?);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Live {
    fn start() -> Self {
        let (input, fed) = mpsc::channel();
        let (sent, output) = mpsc::channel();
        let server = thread::spawn(move || {
            crate::serve_legacy(BufReader::new(Fed(fed, Vec::new())), Out(sent))
        });
        let live = Self {
            input: Some(input),
            output,
            server: Some(server),
        };
        live.send(INITIALIZE);
        assert_eq!(live.receive()["id"], "init");
        live
    }

    fn send(&self, lines: &str) {
        self.input
            .as_ref()
            .unwrap()
            .send(lines.as_bytes().to_vec())
            .unwrap();
    }

    fn receive(&self) -> Value {
        self.output
            .recv_timeout(std::time::Duration::from_secs(10))
            .unwrap()
    }

    /// Ends the input and returns the remaining messages.
    fn end(mut self) -> Vec<Value> {
        self.input = None;
        self.server.take().unwrap().join().unwrap().unwrap();
        self.output.iter().collect()
    }
}

fn slow_count(id: &str, to: u32, delay_ms: u32) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":\"{id}\",\"method\":\"tools/call\",\"params\":{{\"name\":\"slow_count\",\
         \"arguments\":{{\"to\":{to},\"delay_ms\":{delay_ms}}},\"_meta\":{{\"progressToken\":\"{id}\"}}}}}}\n"
    )
}

#[test]
fn slow_count_reports_progress_in_order_before_its_result() {
    let live = Live::start();
    live.send(&slow_count("a", 3, 0));
    for progress in 1..=3 {
        let message = live.receive();
        assert_eq!(message["method"], "notifications/progress");
        assert_eq!(message["params"]["progressToken"], "a");
        assert_eq!(message["params"]["progress"], progress);
        assert_eq!(message["params"]["total"], 3);
    }
    assert_eq!(live.receive()["id"], "a");
    assert!(live.end().is_empty());
}

#[test]
fn slow_call_blocks_no_other_and_ends_when_cancelled() {
    let live = Live::start();
    live.send(&slow_count("a", 1000, 10_000));
    live.send("{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\n");
    assert_eq!(live.receive()["id"], 2);
    live.send("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":\"a\"}}\n");
    live.send("{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\"}\n");
    assert_eq!(live.receive()["id"], 3);
    assert!(live.end().is_empty(), "a cancelled call is not answered");
}

#[test]
fn end_of_input_ends_running_calls() {
    let live = Live::start();
    live.send(&slow_count("a", 1000, 10_000));
    assert!(live.end().is_empty());
}

#[test]
fn id_in_use_is_refused() {
    let live = Live::start();
    live.send(&slow_count("a", 1000, 10_000));
    live.send(&slow_count("a", 1, 0));
    assert_eq!(live.receive()["error"]["code"], -32600);
    assert!(live.end().is_empty());
}

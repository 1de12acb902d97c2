//! The loop of both servers: lines in, lines out, a thread per slow call, cancellation.

use std::collections::HashMap;
use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use serde_json::Value;

use crate::rpc::{self, Call, Incoming, RpcError};

/// The longest line read, in bytes without its line break.
const MAX_LINE: u64 = 16 * 1024 * 1024;
/// Slow calls at a time; each is a thread.
const MAX_SLOW_CALLS: usize = 16;

/// One era's rules over one server's content.
pub(crate) trait Service: Sync {
    /// The answer to a request; called in order on the reading thread, so it must not take long.
    fn answer(&self, call: &Call, outlet: &Outlet<'_>) -> Answer;
    /// The `id` of an answer to a message whose id is unknown; `None` leaves the member out.
    fn unknown_id(&self) -> Option<Value>;
}

/// The time of an answer.
pub(crate) enum Answer {
    /// An immediate answer.
    Now(Result<Value, RpcError>),
    /// An answer by a separate thread; `None` means cancelled, so nothing may be sent.
    Slow(SlowCall),
}

pub(crate) type SlowCall =
    Box<dyn FnOnce(&Cancel, &Outlet<'_>) -> Option<Result<Value, RpcError>> + Send>;

impl From<Result<Value, RpcError>> for Answer {
    fn from(outcome: Result<Value, RpcError>) -> Self {
        Self::Now(outcome)
    }
}

/// Reads requests from `input` until it ends and answers them on `output`.
pub(crate) fn serve<S: Service>(
    service: &S,
    mut input: impl BufRead,
    mut output: impl Write + Send,
) -> io::Result<()> {
    let outlet = Outlet(Mutex::new(&mut output));
    let calls = Calls::default();
    // The scope joins the threads; they are cancelled first, so they end at once.
    thread::scope(|scope| {
        let ended = read_messages(service, &mut input, &outlet, &calls, scope);
        calls.cancel_all();
        ended
    })
}

fn read_messages<'scope, S: Service>(
    service: &S,
    input: &mut impl BufRead,
    outlet: &'scope Outlet<'_>,
    calls: &'scope Calls,
    scope: &'scope thread::Scope<'scope, '_>,
) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        let incoming = match read_line(input, &mut line)? {
            Line::End => return Ok(()),
            Line::TooLong => too_long(),
            Line::Read if line.trim_ascii().is_empty() => continue,
            Line::Read => rpc::parse(&line),
        };
        match incoming {
            Incoming::Request { id, call } => match service.answer(&call, outlet) {
                Answer::Now(outcome) => outlet.send(&rpc::response(Some(id), outcome))?,
                Answer::Slow(slow) => start(slow, id, outlet, calls, scope)?,
            },
            Incoming::Notification(call) if call.method == "notifications/cancelled" => {
                calls.cancel(&call.params["requestId"]);
            }
            Incoming::Notification(_) | Incoming::Response => {}
            Incoming::Invalid { id, error } => {
                outlet.send(&rpc::response(
                    id.or_else(|| service.unknown_id()),
                    Err(error),
                ))?;
            }
        }
    }
}

fn too_long() -> Incoming {
    Incoming::Invalid {
        id: None,
        error: RpcError::new(
            rpc::INVALID_REQUEST,
            format!("Invalid request: a line is at most {MAX_LINE} bytes long"),
        ),
    }
}

fn start<'scope>(
    slow: SlowCall,
    id: Value,
    outlet: &'scope Outlet<'_>,
    calls: &'scope Calls,
    scope: &'scope thread::Scope<'scope, '_>,
) -> io::Result<()> {
    let Some(cancel) = calls.begin(&id) else {
        let reason = format!(
            "`id` is in use, or more than {MAX_SLOW_CALLS} calls are running; try again later"
        );
        return outlet.send(&rpc::response(
            Some(id),
            Err(RpcError::new(rpc::INVALID_REQUEST, reason)),
        ));
    };
    scope.spawn(move || {
        let outcome = slow(&cancel, outlet);
        calls.end(&id);
        if let Some(outcome) = outcome {
            // Without a client, reading ends, and with it the server.
            let _ = outlet.send(&rpc::response(Some(id), outcome));
        }
    });
    Ok(())
}

enum Line {
    Read,
    TooLong,
    End,
}

/// Reads one line of at most [`MAX_LINE`] bytes into `line`; skips a longer one to its end.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Line> {
    line.clear();
    let mut bounded = input.by_ref().take(MAX_LINE + 1);
    if bounded.read_until(b'\n', line)? == 0 {
        return Ok(Line::End);
    }
    if line.last() == Some(&b'\n') || bounded.limit() > 0 {
        return Ok(Line::Read);
    }
    line.clear();
    input.skip_until(b'\n')?;
    Ok(Line::TooLong)
}

/// The output: one line per message, from any thread.
pub(crate) struct Outlet<'a>(Mutex<&'a mut (dyn Write + Send)>);

impl Outlet<'_> {
    pub(crate) fn send(&self, message: &Value) -> io::Result<()> {
        let mut line = message.to_string();
        line.push('\n');
        let mut output = self.0.lock();
        output.write_all(line.as_bytes())?;
        output.flush()
    }
}

/// The running slow calls by request id.
#[derive(Default)]
struct Calls(Mutex<HashMap<String, Arc<Cancel>>>);

impl Calls {
    /// Registers a slow call; `None` if the id is taken or too many calls are running.
    fn begin(&self, id: &Value) -> Option<Arc<Cancel>> {
        let mut running = self.0.lock();
        let key = id.to_string();
        if running.len() >= MAX_SLOW_CALLS || running.contains_key(&key) {
            return None;
        }
        let cancel = Arc::new(Cancel::default());
        running.insert(key, Arc::clone(&cancel));
        Some(cancel)
    }

    fn end(&self, id: &Value) {
        self.0.lock().remove(&id.to_string());
    }

    fn cancel(&self, id: &Value) {
        if let Some(cancel) = self.0.lock().get(&id.to_string()) {
            cancel.set();
        }
    }

    fn cancel_all(&self) {
        for cancel in self.0.lock().values() {
            cancel.set();
        }
    }
}

/// A flag that cancels a slow call.
#[derive(Default)]
pub(crate) struct Cancel {
    cancelled: Mutex<bool>,
    changed: Condvar,
}

impl Cancel {
    fn set(&self) {
        *self.cancelled.lock() = true;
        self.changed.notify_all();
    }

    /// Waits for `duration` or until cancelled; true if cancelled.
    pub(crate) fn wait(&self, duration: Duration) -> bool {
        let mut cancelled = self.cancelled.lock();
        self.changed
            .wait_while_for(&mut cancelled, |cancelled| !*cancelled, duration);
        *cancelled
    }
}

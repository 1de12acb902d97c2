//! An MCP server over stdio that a test controls over a loopback connection (see
//! `fanlight_testkit::wire`).
//!
//! Usage: `scripted-stdio 127.0.0.1:PORT [stubborn] [immune] [parent]`. It exits when its standard
//! input ends, like a well-behaved server, unless it is `stubborn`, and on SIGTERM, unless it is
//! `immune`. A `parent` starts a stubborn process of its own. It always exits when the connection
//! to its test ends.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{ExitCode, Stdio};
use std::thread;

use fanlight_testkit::wire::{self, Command};

const USAGE: &str = "usage: scripted-stdio ADDRESS [stubborn] [immune] [parent]";

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("scripted-stdio: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or_else(|| io::Error::other(USAGE))?;
    let (mut stubborn, mut immune, mut parent) = (false, false, false);
    for habit in arguments {
        match habit.as_str() {
            "stubborn" => stubborn = true,
            "immune" => immune = true,
            "parent" => parent = true,
            _ => return Err(io::Error::other(USAGE)),
        }
    }
    if immune {
        survive_termination()?;
    }
    let mut control = TcpStream::connect(&address)?;
    writeln!(control, "{}", std::process::id())?;
    if parent {
        start_child(&address, immune)?;
    }
    let to_test = control.try_clone()?;
    thread::spawn(move || {
        forward_stdin(&to_test);
        if stubborn {
            // The test sees that the input has ended, and still controls the child.
            let _ = to_test.shutdown(Shutdown::Write);
        } else {
            std::process::exit(0);
        }
    });
    obey(BufReader::new(control))
}

/// Replaces the default action of SIGTERM, which would end the process, by none.
fn survive_termination() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let _context = runtime.enter();
    // The handler stays installed after this value is dropped.
    tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).map(drop)
}

/// Starts a copy of this process that outlives it.
fn start_child(address: &str, immune: bool) -> io::Result<()> {
    let mut child = std::process::Command::new(std::env::current_exe()?);
    child
        .args([address, "stubborn"])
        .args(immune.then_some("immune"))
        .stdin(Stdio::null())
        .spawn()
        .map(drop)
}

/// Sends standard input to the test until either ends.
fn forward_stdin(mut to_test: &TcpStream) {
    // Errors need no handling: the process exits when either side ends.
    let _ = io::copy(&mut io::stdin().lock(), &mut to_test);
}

/// Executes the frames of the test until it closes the connection.
fn obey(mut from_test: impl Read) -> io::Result<ExitCode> {
    let mut head = [0; 5];
    loop {
        if let Err(error) = from_test.read_exact(&mut head) {
            return if error.kind() == io::ErrorKind::UnexpectedEof {
                Ok(ExitCode::FAILURE)
            } else {
                Err(error)
            };
        }
        let (command, length) =
            wire::parse_head(head).ok_or_else(|| io::Error::other("unknown command"))?;
        let mut payload = from_test.by_ref().take(u64::from(length));
        match command {
            Command::Stdout => write_all(&mut payload, io::stdout())?,
            Command::Stderr => write_all(&mut payload, io::stderr())?,
            Command::Exit => {
                let mut code = [0];
                payload.read_exact(&mut code)?;
                return Ok(ExitCode::from(code[0]));
            }
            Command::Kill => rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            )?,
        }
    }
}

fn write_all(payload: &mut impl Read, mut to: impl Write) -> io::Result<()> {
    io::copy(payload, &mut to)?;
    to.flush()
}

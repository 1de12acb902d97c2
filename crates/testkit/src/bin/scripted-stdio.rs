//! An MCP server over stdio that a test controls over a loopback connection (see `fanlight_testkit::wire`).
//!
//! Usage: `scripted-stdio 127.0.0.1:PORT [stubborn]`. It exits when its standard input ends, as a well-behaved server
//! does, unless it is `stubborn`; it always exits when the connection to its test ends.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::ExitCode;
use std::thread;

use fanlight_testkit::wire::{self, Command};

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
    let address = arguments.next().ok_or_else(|| io::Error::other("usage: scripted-stdio ADDRESS [stubborn]"))?;
    let stubborn = arguments.next().is_some_and(|argument| argument == "stubborn");
    let mut control = TcpStream::connect(address)?;
    writeln!(control, "{}", std::process::id())?;
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
            return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(ExitCode::FAILURE) } else { Err(error) };
        }
        let (command, length) = wire::parse_head(head).ok_or_else(|| io::Error::other("unknown command"))?;
        let mut payload = from_test.by_ref().take(u64::from(length));
        match command {
            Command::Stdout => write_all(&mut payload, io::stdout())?,
            Command::Stderr => write_all(&mut payload, io::stderr())?,
            Command::Exit => {
                let mut code = [0];
                payload.read_exact(&mut code)?;
                return Ok(ExitCode::from(code[0]));
            }
        }
    }
}

fn write_all(payload: &mut impl Read, mut to: impl Write) -> io::Result<()> {
    io::copy(payload, &mut to)?;
    to.flush()
}

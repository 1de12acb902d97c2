//! Tries ways around a sandbox, and reports each: `<way> yes` if it worked, or `<way> no: <error>`.
//!
//! `sandbox-escape connect PORT`, `sandbox-escape listen`, `sandbox-escape end PID` or
//! `sandbox-escape abstract NUMBER`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let number = |text: Option<String>| text.and_then(|text| text.parse().ok());
    match (arguments.next().as_deref(), number(arguments.next())) {
        #[cfg(target_os = "linux")]
        (Some("connect"), Some(port)) => linux::connect(port),
        #[cfg(target_os = "linux")]
        (Some("listen"), None) => linux::listen(),
        #[cfg(target_os = "linux")]
        (Some("end"), Some(pid)) => linux::end(pid),
        #[cfg(target_os = "linux")]
        (Some("abstract"), Some(number)) => linux::connect_abstract(number),
        _ => {
            eprintln!("usage: sandbox-escape connect PORT | listen | end PID | abstract NUMBER");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

#[cfg(target_os = "linux")]
mod linux {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr as SocketAddrOfUnix, UnixStream};
    use std::process::Command;

    use rustix::process::{
        Pid, Resource, Rlimit, Signal, kill_process, prlimit, setpriority_process,
    };
    use rustix::thread::{sched_getaffinity, sched_setaffinity};
    use socket2::{Domain, Protocol, SockAddr, Socket, Type};

    use super::*;

    /// `IPPROTO_MPTCP`
    const MPTCP: i32 = 262;
    /// `MSG_FASTOPEN`
    const FAST_OPEN: i32 = 0x2000_0000;

    fn report<T>(way: &str, outcome: io::Result<T>) {
        match outcome {
            Ok(_) => println!("{way} yes"),
            Err(error) => println!("{way} no: {error}"),
        }
    }

    fn socket(protocol: Option<i32>) -> io::Result<Socket> {
        Socket::new(Domain::IPV4, Type::STREAM, protocol.map(Protocol::from))
    }

    pub(super) fn connect(port: i32) {
        let address = SockAddr::from(SocketAddr::from((
            Ipv4Addr::LOCALHOST,
            u16::try_from(port).unwrap_or_default(),
        )));
        report(
            "tcp",
            socket(None).and_then(|socket| socket.connect(&address)),
        );
        report(
            "mptcp",
            socket(Some(MPTCP)).and_then(|socket| socket.connect(&address)),
        );
        report(
            "fast-open",
            socket(None).and_then(|socket| socket.send_to_with_flags(b"x", &address, FAST_OPEN)),
        );
    }

    pub(super) fn listen() {
        report("tcp", socket(None).and_then(|socket| socket.listen(1)));
        report(
            "mptcp",
            socket(Some(MPTCP)).and_then(|socket| socket.listen(1)),
        );
        let pair = Socket::pair(Domain::UNIX, Type::STREAM, None);
        report("unix", pair);
    }

    pub(super) fn connect_abstract(number: i32) {
        let address = SocketAddrOfUnix::from_abstract_name(format!("fanlight-test-{number}"));
        report(
            "abstract",
            address.and_then(|address| UnixStream::connect_addr(&address)),
        );
    }

    pub(super) fn end(pid: i32) {
        let pid = Pid::from_raw(pid);
        // The process gets the signal after running for no time at all.
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        report(
            "limit",
            prlimit(pid, Resource::Cpu, none).map_err(io::Error::from),
        );
        report(
            "slow",
            setpriority_process(pid, 19).map_err(io::Error::from),
        );
        report(
            "processors",
            sched_getaffinity(None)
                .and_then(|all| sched_setaffinity(pid, &all))
                .map_err(io::Error::from),
        );
        let unshared = Command::new("unshare").args(["--user", "true"]).output();
        let unshared = unshared.and_then(|ended| match ended.status.success() {
            true => Ok(()),
            false => Err(io::Error::other(String::from_utf8_lossy(&ended.stderr))),
        });
        report("namespace", unshared);
        report(
            "own",
            setpriority_process(None, 19).map_err(io::Error::from),
        );
        report("thread", std::thread::Builder::new().spawn(|| ()));
        report(
            "signal",
            pid.map_or(Ok(()), |pid| kill_process(pid, Signal::KILL))
                .map_err(io::Error::from),
        );
    }
}

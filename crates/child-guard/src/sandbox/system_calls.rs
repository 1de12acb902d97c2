//! System calls that seccomp forbids to a server in a sandbox, since they lead around the rest of
//! the sandbox.
//!
//! They fail with `EACCES`. Programs for another architecture, such as 32-bit ones, are ended.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use fanlight_config::settings::Sandbox;
use nix::libc;
use rustix::process::{Pid, getpgid};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// The bit that marks system call numbers of the x32 ABI, which is another way to the same calls.
const X32: i64 = 0x4000_0000;
/// Constants that libc does not define everywhere: a socket option, a command of `fcntl`, and
/// requests of `ioctl`.
const TCP_ULP: i32 = 31;
const F_SETOWN_EX: i32 = 15;
const FIOSETOWN: i32 = 0x8901;
const SIOCSPGRP: i32 = 0x8902;
/// The allowed socket families.
const FAMILIES: [i32; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];
/// The allowed protocols of Internet sockets. MPTCP and SCTP can reach TCP ports, or similar ones,
/// without Landlock noticing.
const PROTOCOLS: [i32; 5] = [
    libc::IPPROTO_IP,
    libc::IPPROTO_TCP,
    libc::IPPROTO_UDP,
    libc::IPPROTO_ICMP,
    libc::IPPROTO_ICMPV6,
];
/// Marks the second argument of `ioprio_set` as a process or thread.
const IOPRIO_WHO_PROCESS: i32 = 1;
/// The part of a socket's type that is not a flag (`SOCK_TYPE_MASK`).
const TYPE: u64 = 0xf;

/// The processes that a server must not signal, if Landlock cannot prevent that.
pub(super) struct Protected {
    pub(super) guard: Pid,
    pub(super) fanlight: u32,
}

impl Protected {
    /// The ids of the processes, of the guard's threads, which count as the guard as well, and of
    /// their groups. Threads of Fanlight come and go; if Fanlight ends, the guard ends the server.
    fn numbers(&self) -> Vec<i32> {
        let pids = [
            Some(self.guard),
            i32::try_from(self.fanlight).ok().and_then(Pid::from_raw),
        ];
        let pids: Vec<Pid> = pids.into_iter().flatten().collect();
        let groups = pids.iter().filter_map(|pid| getpgid(Some(*pid)).ok());
        let mut numbers: Vec<i32> = pids
            .iter()
            .copied()
            .chain(groups)
            .map(|pid| pid.as_raw_nonzero().get())
            .collect();
        let threads = fs::read_dir(format!("/proc/{}/task", self.guard))
            .into_iter()
            .flatten()
            .flatten();
        numbers
            .extend(threads.filter_map(|thread| thread.file_name().to_str()?.parse::<i32>().ok()));
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}

/// Forbids this process and its descendants the calls, for good.
pub(super) fn forbid(sandbox: &Sandbox, protected: Option<&Protected>) -> io::Result<()> {
    let filter = filter(sandbox, protected).map_err(seccomp_error)?;
    apply_filter(&BpfProgram::try_from(filter).map_err(seccomp_error)?).map_err(seccomp_error)?;
    // A filter cannot read its flags, which are in memory. Where it does not exist, programs use
    // `clone`.
    let filter = SeccompFilter::new(
        [(libc::SYS_clone3, Vec::new())].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS.unsigned_abs()),
        std::env::consts::ARCH.try_into().map_err(seccomp_error)?,
    );
    let filter = filter.map_err(seccomp_error)?;
    apply_filter(&BpfProgram::try_from(filter).map_err(seccomp_error)?).map_err(seccomp_error)
}

fn seccomp_error(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!(
        "sandbox: the system cannot enforce it: it needs seccomp ({error})"
    ))
}

fn filter(sandbox: &Sandbox, protected: Option<&Protected>) -> Result<SeccompFilter, Error> {
    let mut rules = Rules::default();
    // Another process's limits: changed limits could end one of Fanlight's processes.
    rules.add(libc::SYS_prlimit64, [is_not(0, 0), is_not_null(2)])?;
    rules.forbid_slowing_others()?;
    rules.forbid_user_namespaces()?;
    let landlock = sandbox.landlock.as_ref();
    let connect = landlock.and_then(|landlock| landlock.connect.as_deref());
    let bind = landlock.and_then(|landlock| landlock.bind.as_deref());
    if connect.is_some() || bind.is_some() {
        rules.restrict_sockets()?;
    }
    if connect.is_some() {
        rules.forbid_fast_open()?;
    }
    match (connect, bind) {
        (Some([]), Some([])) => rules.forbid_tcp()?,
        // An unbound socket listens on any port.
        (_, Some([])) => rules.add(libc::SYS_listen, [])?,
        _ => {}
    }
    if let Some(protected) = protected {
        rules.forbid_signals(protected)?;
    }
    let (others, these) = (
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EACCES.unsigned_abs()),
    );
    SeccompFilter::new(rules.0, others, these, std::env::consts::ARCH.try_into()?)
}

type Error = seccompiler::BackendError;

/// Forbidden calls. A call with conditions is forbidden if all conditions in any of its lists hold.
#[derive(Default)]
struct Rules(BTreeMap<i64, Vec<SeccompRule>>);

/// A condition for one argument.
type Condition = Result<SeccompCondition, Error>;

fn is(argument: u8, value: i32) -> Condition {
    SeccompCondition::new(
        argument,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Eq,
        u64::from(value.cast_unsigned()),
    )
}

fn is_not(argument: u8, value: i32) -> Condition {
    SeccompCondition::new(
        argument,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Ne,
        u64::from(value.cast_unsigned()),
    )
}

fn is_not_null(argument: u8) -> Condition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)
}

/// Whether an argument's bits in `mask` equal `value`.
fn has(argument: u8, mask: u64, value: i32) -> Condition {
    let value = u64::from(value.cast_unsigned());
    SeccompCondition::new(
        argument,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(mask),
        value,
    )
}

impl Rules {
    /// Forbids a system call: whenever all of these conditions hold, or always if there are none.
    fn add(
        &mut self,
        call: i64,
        conditions: impl IntoIterator<Item = Condition>,
    ) -> Result<(), Error> {
        let conditions: Vec<_> = conditions.into_iter().collect::<Result<_, _>>()?;
        let numbers = if cfg!(target_arch = "x86_64") {
            vec![call, X32 + x32(call)]
        } else {
            vec![call]
        };
        for number in numbers {
            let rules = self.0.entry(number).or_default();
            if !conditions.is_empty() {
                rules.push(SeccompRule::new(conditions.clone())?);
            }
        }
        Ok(())
    }

    /// Forbids changes of the priority and processors of other threads, which could slow Fanlight.
    fn forbid_slowing_others(&mut self) -> Result<(), Error> {
        for (call, which) in [
            (libc::SYS_setpriority, libc::PRIO_PROCESS.cast_signed()),
            (libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS),
        ] {
            self.add(call, [is_not(0, which)])?;
            self.add(call, [is_not(1, 0)])?;
        }
        for call in [
            libc::SYS_sched_setaffinity,
            libc::SYS_sched_setattr,
            libc::SYS_sched_setparam,
            libc::SYS_sched_setscheduler,
        ] {
            self.add(call, [is_not(0, 0)])?;
        }
        Ok(())
    }

    /// Forbids new user namespaces, in which a process has all capabilities, and joining others.
    fn forbid_user_namespaces(&mut self) -> Result<(), Error> {
        let is_new = || {
            let flag = u64::from(libc::CLONE_NEWUSER.cast_unsigned());
            has(0, flag, libc::CLONE_NEWUSER)
        };
        self.add(libc::SYS_unshare, [is_new()])?;
        self.add(libc::SYS_clone, [is_new()])?;
        self.add(libc::SYS_setns, [])
    }

    /// Allows only sockets whose ports Landlock restricts, and sockets without TCP.
    fn restrict_sockets(&mut self) -> Result<(), Error> {
        self.add(libc::SYS_socket, FAMILIES.map(|family| is_not(0, family)))?;
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut other_protocol = vec![is(0, family)];
            other_protocol.extend(PROTOCOLS.map(|protocol| is_not(2, protocol)));
            self.add(libc::SYS_socket, other_protocol)?;
            for kind in [libc::SOCK_SEQPACKET, libc::SOCK_DCCP] {
                self.add(libc::SYS_socket, [is(0, family), has(1, TYPE, kind)])?;
            }
        }
        // A socket could later change to another protocol.
        self.add(
            libc::SYS_setsockopt,
            [is(1, libc::IPPROTO_TCP), is(2, TCP_ULP)],
        )?;
        // Its operations equal other calls, which this filter would not see.
        for call in [
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_enter,
            libc::SYS_io_uring_register,
        ] {
            self.add(call, [])?;
        }
        Ok(())
    }

    /// Forbids connecting by sending (TCP Fast Open): Landlock does not see such connections.
    fn forbid_fast_open(&mut self) -> Result<(), Error> {
        for (call, flags) in [
            (libc::SYS_sendto, 3),
            (libc::SYS_sendmsg, 2),
            (libc::SYS_sendmmsg, 3),
        ] {
            let mask = u64::from(libc::MSG_FASTOPEN.cast_unsigned());
            self.add(call, [has(flags, mask, libc::MSG_FASTOPEN)])?;
        }
        Ok(())
    }

    fn forbid_tcp(&mut self) -> Result<(), Error> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            self.add(
                libc::SYS_socket,
                [is(0, family), has(1, TYPE, libc::SOCK_STREAM)],
            )?;
        }
        Ok(())
    }

    /// Forbids signals to the guard and to Fanlight: by process id, by group, and by other
    /// references to a process.
    fn forbid_signals(&mut self, protected: &Protected) -> Result<(), Error> {
        let all = -1;
        self.add(libc::SYS_kill, [is(0, all)])?;
        for pid in protected.numbers() {
            let calls = [
                libc::SYS_kill,
                libc::SYS_tkill,
                libc::SYS_tgkill,
                libc::SYS_rt_sigqueueinfo,
                libc::SYS_rt_tgsigqueueinfo,
                libc::SYS_pidfd_open,
            ];
            for call in calls {
                self.add(call, [is(0, pid)])?;
            }
            // A process could join their group.
            self.add(libc::SYS_kill, [is(0, pid.saturating_neg())])?;
            self.add(libc::SYS_setpgid, [is(1, pid)])?;
            for owner in [pid, pid.saturating_neg()] {
                self.add(libc::SYS_fcntl, [is(1, libc::F_SETOWN), is(2, owner)])?;
            }
        }
        // A filter cannot read the targets of these calls: they are in memory, or a descriptor.
        self.add(libc::SYS_fcntl, [is(1, F_SETOWN_EX)])?;
        self.add(libc::SYS_ioctl, [is(1, FIOSETOWN)])?;
        self.add(libc::SYS_ioctl, [is(1, SIOCSPGRP)])?;
        self.add(libc::SYS_pidfd_send_signal, [])
    }
}

/// The number of a call in the x32 ABI, which has separate numbers for calls with pointers in their
/// arguments.
fn x32(call: i64) -> i64 {
    match call {
        libc::SYS_ioctl => 514,
        libc::SYS_sendmsg => 518,
        libc::SYS_rt_sigqueueinfo => 524,
        libc::SYS_rt_tgsigqueueinfo => 536,
        libc::SYS_sendmmsg => 538,
        libc::SYS_setsockopt => 541,
        other => other,
    }
}

//! Loopback ports that tests name in a configuration.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Mutex;

use tokio::net::TcpSocket;

/// Ports outside of the range from which systems choose free ones.
const CHOSEN: std::ops::Range<u16> = 20_000..32_000;

/// An address that refuses connections. No other program gets it while this value exists.
pub struct Refusing {
    /// The address.
    pub address: SocketAddr,
    /// Bound, but not listening.
    _bound: TcpSocket,
}

impl Refusing {
    /// Finds such an address.
    pub fn any() -> Self {
        let bound = TcpSocket::new_v4().unwrap();
        bound.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        Self {
            address: bound.local_addr().unwrap(),
            _bound: bound,
        }
    }
}

/// A free address for a program that the test starts and restarts. No other test of this process
/// gets it.
pub fn free() -> SocketAddr {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let port = fastrand::u16(CHOSEN);
        let address = (Ipv4Addr::LOCALHOST, port).into();
        if GIVEN.lock().unwrap().insert(port) && TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn refusing_address_is_taken_and_refuses() {
        let refusing = Refusing::any();
        let error = tokio::net::TcpStream::connect(refusing.address)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        assert!(TcpListener::bind(refusing.address).is_err());
    }
}

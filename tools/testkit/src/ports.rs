//! Ports of the loopback interface that tests name in a configuration.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Mutex;

use tokio::net::TcpSocket;

/// Outside of the ports that systems choose when a program asks for any.
const CHOSEN: std::ops::Range<u16> = 20_000..32_000;

/// An address that refuses connections. No other program gets it while this exists.
pub struct Refusing {
    /// The address.
    pub address: SocketAddr,
    /// Bound, without listening.
    _bound: TcpSocket,
}

impl Refusing {
    /// Some such address.
    pub fn any() -> Self {
        let bound = TcpSocket::new_v4().unwrap();
        bound.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        Self {
            address: bound.local_addr().unwrap(),
            _bound: bound,
        }
    }
}

/// An address at which a program that the test starts can listen, also after it has ended: nothing does now, and other tests of
/// this process do not get it.
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

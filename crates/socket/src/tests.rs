use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// Far longer than anything here takes.
const SOON: Duration = Duration::from_secs(10);

async fn pair() -> (Socket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    (Socket::new(near), far)
}

/// One look, by whoever polls this.
async fn look(socket: &mut Socket) -> Poll<Vec<u8>> {
    let mut bytes = [0; 64];
    poll_fn(|cx| {
        let mut read = ReadBuf::new(&mut bytes);
        let polled = Pin::new(&mut *socket).poll_read(cx, &mut read);
        Poll::Ready(polled.map(|done| done.map(|()| read.filled().to_vec()).unwrap()))
    })
    .await
}

#[tokio::test]
async fn who_has_looked_in_vain_is_woken_however_often_it_looks() {
    let (mut socket, mut far) = pair().await;
    for round in 0..20_u8 {
        for _ in 0..round {
            assert_eq!(look(&mut socket).await, Poll::Pending);
        }
        let send = async {
            tokio::task::yield_now().await;
            far.write_all(&[round]).await.unwrap();
        };
        let (read, ()) = tokio::join!(socket.read_u8(), send);
        assert_eq!(read.unwrap(), round);
    }
    drop(far);
    assert_eq!(socket.read(&mut [0; 8]).await.unwrap(), 0);
}

#[tokio::test]
async fn the_last_who_looked_is_woken_be_it_another_task() {
    struct Nobody(AtomicUsize);
    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (mut socket, mut far) = pair().await;
    let nobody = Arc::new(Nobody(AtomicUsize::new(0)));
    let waker = Arc::clone(&nobody).into();
    for _ in 0..2 {
        let (mut bytes, mut cx) = ([0; 8], Context::from_waker(&waker));
        assert!(Pin::new(&mut socket).poll_read(&mut cx, &mut ReadBuf::new(&mut bytes)).is_pending());
    }
    let send = async {
        tokio::task::yield_now().await;
        far.write_all(b"x").await.unwrap();
    };
    let (read, ()) = tokio::join!(socket.read_u8(), send);
    assert_eq!(read.unwrap(), b'x');
    assert_eq!(nobody.0.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_look_that_the_runtime_put_off_is_made_later() {
    let (mut socket, mut far) = pair().await;
    let look_again = async {
        // All of the task's turn is used up: this look sees nothing, and nobody is to be woken for it.
        while coop::has_budget_remaining() {
            coop::consume_budget().await;
        }
        let _ = look(&mut socket).await;
        // One that nobody wakes looks once more when its time is up.
        let begun = Instant::now();
        let read = tokio::time::timeout(SOON * 2, socket.read_u8()).await;
        assert!(begun.elapsed() < SOON, "nobody woke it");
        read.unwrap().unwrap()
    };
    let send = tokio::spawn(async move {
        tokio::task::yield_now().await;
        far.write_all(b"y").await.unwrap();
        far
    });
    assert_eq!(look_again.await, b'y');
    send.await.unwrap();
}

#[tokio::test]
async fn pieces_arrive_as_one_text() {
    for length in [1, 500, 600, 100_000] {
        let (mut socket, mut far) = pair().await;
        let (one, other) = (vec![b'a'; length], vec![b'b'; length]);
        let write = async {
            let mut pieces = [IoSlice::new(&one), IoSlice::new(&other)];
            let mut left: &mut [IoSlice<'_>] = &mut pieces;
            while !left.is_empty() {
                let written = socket.write_vectored(left).await.unwrap();
                IoSlice::advance_slices(&mut left, written);
            }
            socket.shutdown().await.unwrap();
        };
        let mut whole = Vec::new();
        let ((), read) = tokio::join!(write, far.read_to_end(&mut whole));
        read.unwrap();
        assert!(whole == [one.as_slice(), &other].concat(), "{length}");
    }
}

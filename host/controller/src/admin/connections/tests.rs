//! Over real sockets. Where a minute has to pass, it passes by tokio's paused clock, which is moved by hand: sockets take real time.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;

use axum::body::Body;
use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, pause, resume};

use super::*;

/// More than the buffers of both sockets take, so that the answer waits for its reader.
const LARGE: usize = 64 << 20;
const PROBE: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: kproxide\r\n\r\n";
const HALF: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: k";
/// Long before its deadline, and long enough for a machine with much else to do.
const SOON: Duration = Duration::from_secs(5);

struct Port {
    address: SocketAddr,
    _server: JoinSet<Infallible>,
}

impl Port {
    async fn open() -> Self {
        let router = Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route(
                "/debug/plan",
                get(|| async { Body::from(vec![b' '; LARGE]) }),
            );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = JoinSet::new();
        server.spawn(serve(listener, router));
        Self {
            address,
            _server: server,
        }
    }

    /// Connects and says this, however little of a request it is.
    async fn say(&self, words: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // The server may have closed it already.
        let _ = stream.write_all(words).await;
        stream
    }

    async fn probe(&self) -> String {
        let mut stream = self.say(PROBE).await;
        timeout(SOON, rest(&mut stream)).await.unwrap()
    }
}

/// What comes until the server closes the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// True once the server has closed it, whatever it said before.
async fn is_closed(stream: &mut TcpStream) -> bool {
    timeout(SOON, rest(stream)).await.is_ok()
}

/// Time passes on tokio's clock alone, in one step that no socket has a part in.
async fn passes(time: Duration) {
    pause();
    tokio::time::advance(time).await;
    resume();
}

#[tokio::test]
async fn s2_a_probe_gets_in_among_2000_half_open_connections() {
    let port = Port::open().await;
    let mut first = port.say(HALF).await;
    let mut last = VecDeque::new();
    for number in 1..=2000 {
        last.push_back(port.say(HALF).await);
        // Those that made room need no descriptor here either.
        if last.len() > 2 * CONNECTIONS_MAX {
            assert!(is_closed(&mut last.pop_front().unwrap()).await);
        }
        if number % 100 == 0 {
            assert!(port.probe().await.ends_with("ok\n"), "{number}");
        }
    }
    assert!(is_closed(&mut first).await);
    // The last ones still stand.
    let mut byte = [0];
    let waits = |stream: &&TcpStream| {
        let read = stream.try_read(&mut byte);
        read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    let standing = last.iter().filter(waits).count();
    assert!((1..=CONNECTIONS_MAX).contains(&standing), "{standing}");
}

#[tokio::test]
async fn s2_slow_readers_make_room_after_those_that_ask_nothing() {
    let port = Port::open().await;
    let slow = async || {
        let mut stream = port
            .say(b"GET /debug/plan HTTP/1.1\r\nhost: kproxide\r\n\r\n")
            .await;
        // Its request has arrived once the answer begins.
        stream.read_u8().await.unwrap();
        stream
    };
    let mut slow_readers = Vec::new();
    for _ in 0..CONNECTIONS_MAX / 2 {
        slow_readers.push(slow().await);
    }
    let mut silent = port.say(b"GET").await;
    while slow_readers.len() < CONNECTIONS_MAX - 1 {
        slow_readers.push(slow().await);
    }
    assert!(port.probe().await.ends_with("ok\n"));
    assert!(is_closed(&mut silent).await);
    // The probe has gone. One takes its place, the next one that of the oldest.
    slow_readers.push(slow().await);
    assert!(port.probe().await.ends_with("ok\n"));
    let mut oldest = slow_readers.remove(0);
    assert!(rest(&mut oldest).await.len() < LARGE);
    let mut second = slow_readers.remove(0);
    assert!(
        rest(&mut second).await.len() >= LARGE,
        "it had to wait for nobody"
    );
}

#[tokio::test]
async fn s2_a_connection_ends_after_10_seconds_without_a_request_and_after_60_in_all() {
    let port = Port::open().await;
    let began = Instant::now();
    let mut silent = port.say(b"GET /healthz HTTP/1.1\r\n").await;
    let mut slow = port
        .say(b"GET /debug/plan HTTP/1.1\r\nhost: kproxide\r\n\r\n")
        .await;
    slow.read_u8().await.unwrap();
    passes(REQUEST_DEADLINE).await;
    assert!(is_closed(&mut silent).await);
    passes(CONNECTION_DEADLINE - began.elapsed() - SOON).await;
    let mut part = vec![0; 4 << 20];
    slow.read_exact(&mut part).await.unwrap();
    passes(SOON).await;
    assert!(rest(&mut slow).await.len() < LARGE - part.len());
}

#[tokio::test]
async fn s2_headers_over_16_kib_are_refused() {
    let port = Port::open().await;
    let padded = |letters: usize| {
        let padding = "x".repeat(letters);
        format!("GET /healthz HTTP/1.1\r\nhost: kproxide\r\npadding: {padding}\r\n\r\n")
    };
    for (letters, status) in [(HEADERS_MAX - 1000, " 200 "), (HEADERS_MAX, " 431 ")] {
        let mut stream = port.say(padded(letters).as_bytes()).await;
        let answer = timeout(SOON, rest(&mut stream)).await.unwrap();
        assert!(answer.contains(status), "{letters}: {answer}");
    }
}

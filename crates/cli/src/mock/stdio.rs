//! A mock on a pair of byte streams: one client, and each message on a line.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::json::on_one_line;
use fanlight_protocol::line::LineDecoder;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::QUEUE;
use super::connection::{MESSAGE, messages_of_line};
use super::connection::{MockedClient, Outgoing};

/// The time for running requests after the input has ended. A constant, as the client has said that
/// it will send nothing more.
const DRAIN: Duration = Duration::from_secs(10);

/// Reads the first line with text. Returns it, and the whole input.
pub(super) async fn first_line<I: AsyncRead + Send + Unpin>(
    input: I,
) -> io::Result<(Bytes, impl AsyncRead + Send + Unpin + use<I>)> {
    let mut input = BufReader::new(input).take(MESSAGE as u64);
    let mut line = Vec::new();
    while line.trim_ascii().is_empty() && input.read_until(b'\n', &mut line).await? > 0 {}
    let line = Bytes::from(line);
    let rest = input.into_inner();
    Ok((line.clone(), io::Cursor::new(line).chain(rest)))
}

/// Serves one client until its input ends.
pub(super) async fn serve(
    connection: Arc<MockedClient>,
    input: impl AsyncRead + Send + Unpin,
    output: impl AsyncWrite + Send + Unpin,
) -> io::Result<()> {
    let (out, messages) = mpsc::channel(QUEUE);
    let mut writing = pin!(write_lines(output, messages));
    let mut requests = JoinSet::new();
    let of_outside = out.clone();
    let outside = async {
        connection.send_outside(&mut 0, &of_outside).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        read = read_lines(&connection, input, &out, &mut requests) => read?,
        () = outside => {}
        written = &mut writing => return written,
    }
    drop((out, of_outside));
    let finished = async {
        while requests.join_next().await.is_some() {}
        writing.await
    };
    timeout(DRAIN, finished).await.unwrap_or(Ok(()))
}

async fn read_lines(
    connection: &Arc<MockedClient>,
    mut input: impl AsyncRead + Unpin,
    out: &mpsc::Sender<Outgoing>,
    requests: &mut JoinSet<()>,
) -> io::Result<()> {
    let mut decoder = LineDecoder::new(MESSAGE);
    let mut is_open = true;
    while is_open {
        is_open = input.read_buf(decoder.buffer_mut()).await? > 0;
        while let Some(line) = decoder.next_line().or_else(|| match is_open {
            true => None,
            false => decoder.finish(),
        }) {
            for message in messages_of_line(line) {
                let Some(answer) = connection.receive(message) else {
                    continue;
                };
                let (connection, out) = (Arc::clone(connection), out.clone());
                requests.spawn(async move { connection.answer(answer, out).await });
            }
        }
        while requests.try_join_next().is_some() {}
    }
    Ok(())
}

async fn write_lines(
    mut output: impl AsyncWrite + Unpin,
    mut messages: mpsc::Receiver<Outgoing>,
) -> io::Result<()> {
    while let Some(message) = messages.recv().await {
        let mut line = on_one_line(&message.text).to_vec();
        line.push(b'\n');
        output.write_all(&line).await?;
        output.flush().await?;
    }
    Ok(())
}

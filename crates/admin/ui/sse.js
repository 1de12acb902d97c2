// Server-sent events of a response.

/** Calls back with the name and the data of each event, until the stream ends. */
export async function readEvents(response, callback) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      event(text.slice(0, end), callback);
      text = text.slice(end + 2);
    }
  }
}

function event(block, callback) {
  let name = "message";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    if (line.startsWith("data: ")) data += line.slice(6);
  }
  if (data) callback(name, data);
}

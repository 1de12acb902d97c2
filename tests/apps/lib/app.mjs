// The app: shows the result of its tool, and calls its server's tools by the names that the server gives them.

import { App } from "@modelcontextprotocol/ext-apps";

const app = new App({ name: "board", version: "1.0.0" }, {});
const text = (result) => result.content.map((block) => block.text).join("");
const show = (id, value) => (document.getElementById(id).textContent = value);

app.ontoolresult = (result) => show("result", text(result));
for (const button of document.querySelectorAll("button")) {
  button.onclick = async () => {
    const name = button.dataset.tool;
    try {
      show("answer", text(await app.callServerTool({ name, arguments: {} })));
    } catch (error) {
      show("answer", error.message);
    }
  };
}
await app.connect();

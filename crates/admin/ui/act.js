// What a button has the server do.

import { ask } from "./api.js";
import { say } from "./dom.js";

/**
 * Posts to a path, says `done`, and shows what has become of it by `refresh`. The buttons are off meanwhile, and on again only
 * after a failure.
 */
export async function act(buttons, path, done, refresh) {
  const disable = (disabled) => buttons.forEach((button) => { button.disabled = disabled; });
  disable(true);
  try {
    await ask(path, { method: "POST" });
    say(done);
    await refresh();
  } catch (error) {
    say(error.message);
    disable(false);
  }
}

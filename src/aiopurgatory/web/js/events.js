import { again, online } from "./poll.js";

// Yields the events of *url*, as { id, name, data }. After a break, resumes from the last id. Ends after the event "end",
// at 204, and when *signal* is aborted. Goes on after 5xx, when there is no answer, and at once when there is a network again.
// Throws if trying again is of no use, as after 401, 403, 404 and 410.
//   after: the id to resume from. silence: seconds without a byte after which the connection counts as broken; longer than
//   Policy.heartbeat. replaced: awaited when a newer stream with the same client= has replaced this one; without it, goes on
//   after 30 to 60 s. heard: called with each answer's status; 0: there was none, or the connection broke.
export async function* events(url, { signal = new AbortController().signal, after = "", silence = 60, replaced, heard } = {}) {
  for (let id = after, tries = 0; !signal.aborted; ) {
    const asking = new AbortController(), net = online();
    let timer, answer = null, name, retry = 0;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => asking.abort(), silence * 1000);
    };
    try {
      alive();
      const headers = { Accept: "text/event-stream", ...(id && { "Last-Event-ID": id }) };
      const either = AbortSignal.any([signal, asking.signal, net]);
      answer = await fetch(url, { headers, cache: "no-store", signal: either }).catch(() => null);
      if (signal.aborted || answer?.status === 204) return;
      heard?.(answer?.status ?? 0);
      if (answer?.status === 200) {
        if (!answer.headers.get("Content-Type")?.startsWith("text/event-stream")) throw new Error(`${url} sends no events`);
        for await (const event of parsed(answer.body, id, alive)) {
          if (event.retry) retry = event.retry;
          if (event.data === undefined) continue;
          ({ id, name } = event);
          tries = 0;
          if (name === "replaced") break;
          yield { id, name, data: event.data };
          if (name === "end") return;
        }
        heard?.(0);
      }
    } finally {
      clearTimeout(timer);
      asking.abort();                    // also if the caller leaves its loop
    }
    const status = name === "replaced" ? 409 : answer?.status ?? 0;
    const told = status === 409 ? 0 : answer?.status === 200 ? retry : Number(answer?.headers.get("Retry-After"));
    await again(url, status, told, tries++, { signal, replaced, net });
  }
}

// Ends when the stream does, or breaks.
async function* parsed(body, id, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "", event = {}; ; ) {
    const { done, value } = await reader.read().catch(() => ({ done: true }));
    if (done) return;
    alive();
    const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    for (const line of lines) {
      const [, field, text = ""] = /^([^:]*)(?:: ?(.*))?$/s.exec(line);
      if (field === "id") id = text;
      else if (field === "event") event.name = text || "message";
      else if (field === "data") event.data = event.data === undefined ? text : `${event.data}\n${text}`;
      else if (field === "retry") yield { retry: Number(text) / 1000 };
      else if (!line) {
        if (event.data !== undefined) yield { name: "message", ...event, id };
        event = {};
      }
    }
  }
}

import { events } from "./events.js";

// As events(), by one stream for all tabs of a browser that call this with the same *url*: over HTTP/1.1, a browser opens six
// connections to a host. One tab has the stream, and hands its events to the others. When it is closed, another one goes on.
// Without navigator.locks, as in Node 20 and on pages by plain HTTP, each has a stream of its own.
//   keep: so many of the last events are kept for tabs that come later. A tab that needs older ones has a stream of its own.
//   1: only the newest counts, as of a state. The other options are those of events().
export async function* shared(url, { signal = new AbortController().signal, after = "", keep = 1000, ...options } = {}) {
  if (!globalThis.navigator?.locks) return yield* events(url, { ...options, signal, after });
  const leaving = new AbortController(), stop = AbortSignal.any([signal, leaving.signal]);
  const channel = new BroadcastChannel(`events of ${url}`), me = Math.random(), queue = [], kept = [];
  let id = after, isLeading = false, isAsking = false, own = null, wake = () => {};

  const put = (item) => { queue.push(item); wake(); };
  const take = (each) => {               // an event, and the id before it
    id = each.event.id;
    kept.push(each);
    if (kept.length > keep) kept.shift();
    put(each);
  };
  const takeNext = (each) => {
    const isNext = keep === 1 ? each.event.id !== id : each.before === id;
    if (isNext) take(each);
    return isNext;
  };
  const tell = (message) => { if (isLeading) channel.postMessage(message); };
  const ask = () => { isAsking = true; channel.postMessage({ from: me, known: id }); };
  const answer = ({ from, known }) => {
    const first = keep === 1 ? kept.length - 1 : kept.findIndex((each) => each.before === known);
    tell({ to: from, list: first < 0 ? [] : kept.slice(first), isLost: first < 0 && keep > 1 && known !== id });
  };
  const stream = async () => {
    let error;
    try {
      for await (const event of events(url, { ...options, after: id, signal: stop })) {
        const each = { event, before: id };
        take(each);
        tell({ each });
      }
    } catch ({ message, status }) { error = { message, status }; }
    if (stop.aborted) return;            // this tab is closed: another one goes on
    put({ error });
    tell({ isOver: true, error });
  };

  channel.onmessage = ({ data }) => {
    if (isLeading || own) { if (data.from) answer(data); }
    else if (data.isLeading) ask();
    else if (data.isOver) put(data);
    else if (data.each) takeNext(data.each) || isAsking || ask();
    else if (data.to === me && isAsking) {
      isAsking = false;
      for (const each of data.list) takeNext(each);
      if (data.isLost) own = stream();
    }
  };
  ask();
  signal.addEventListener("abort", () => wake(), { once: true, signal: leaving.signal });
  navigator.locks.request(`events of ${url}`, { signal: stop }, async () => {
    isLeading = true;
    tell({ isLeading });
    await (own ?? stream());
    if (!stop.aborted) await new Promise((done) => setTimeout(done, 1000));  // the others hear of the end first
  }).catch(() => {});                    // it was closed while it waited

  try {
    while (!signal.aborted) {
      if (!queue.length) await new Promise((done) => { wake = done; });
      const item = queue.shift();
      if (item?.event) yield item.event;
      else if (item?.error) throw Object.assign(new Error(item.error.message), { status: item.error.status });
      else if (item) return;
    }
  } finally {
    leaving.abort();
    channel.close();
  }
}

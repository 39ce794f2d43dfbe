// The data of the page: scripts of the folder beside it, loaded when they are needed and forgotten when there are many.
const tpkdAudit = (() => {
  "use strict";
  const KEPT_CHUNKS = 192;
  const found = new Map();
  const waiting = new Map();
  const loaded = { total: 0, inputs: 0, details: 0, index: 0 };

  const unpacked = (data) => {
    if (Array.isArray(data) || data === null || typeof data !== "object") return data;
    if (typeof data.base64 === "string") return tpkd.unpack(data.base64, window[data.type]);
    return data;
  };
  // Every file of the folder calls this with its name and its data.
  const take = (name, data) => {
    const columns = name === "record" ? data : Object.fromEntries(Object.entries(data).map(([key, value]) => [key, unpacked(value)]));
    found.set(name, columns);
    loaded.total += 1;
    const kind = name.split(/[-/]/)[0];
    if (kind in loaded) loaded[kind] += 1;
    const chunks = [...found.keys()].filter((each) => each.includes("/"));
    chunks.slice(0, Math.max(0, chunks.length - KEPT_CHUNKS)).forEach((each) => found.delete(each));
    waiting.get(name)?.resolve(columns);
    waiting.delete(name);
  };
  const get = (name) => found.get(name);
  const load = (name) => {
    if (found.has(name)) return Promise.resolve(found.get(name));
    if (waiting.has(name)) return waiting.get(name).promise;
    const request = {};
    request.promise = new Promise((resolve, reject) => Object.assign(request, { resolve, reject }));
    waiting.set(name, request);
    const script = document.createElement("script");
    script.addEventListener("load", () => script.remove());
    script.addEventListener("error", () => {
      script.remove();
      waiting.delete(name);
      request.reject(new Error(`data/${name}.js cannot be read: the page needs the folder data beside it`));
    });
    script.src = `data/${name}.js`;
    document.head.append(script);
    return request.promise;
  };
  return { take, get, load, loaded };
})();

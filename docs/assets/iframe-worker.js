// A page that is opened from a folder may not start a worker; the search then runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inside = frame.contentWindow
      this.inside.postMessage = data => {
        const message = new MessageEvent("message", { data })
        this.dispatchEvent(message)
        this.onmessage?.(message)
      }
      this.ready = new Promise((resolve, reject) => {
        const script = this.inside.document.createElement("script")
        script.src = address
        script.onload = resolve
        script.onerror = reject
        this.inside.document.body.append(script)
      })
      this.frame = frame
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {
      this.frame.remove()
    }
  }
}

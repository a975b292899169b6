/* <vramwise-estimate scenario="model=llama-3.1-8b&task=serve&gpu=rtx-4090"></vramwise-estimate> in anybody's page:
   the answer in a frame of this page, as high as it is. `src` names another place where the page lies. */

/* A plain script may come from another place than the page that shows it; a module only where that place allows it. */
const script = document.currentScript ?? [...document.querySelectorAll("script[src]")].find((one) => /\/element\.js([?#]|$)/.test(one.src));
const HERE = new URL(".", script?.src ?? document.baseURI);

class VramwiseEstimate extends HTMLElement {
  static observedAttributes = ["scenario", "src"];

  connectedCallback() {
    this.frame = document.createElement("iframe");
    this.frame.title = "vramwise";
    this.frame.loading = "lazy";
    Object.assign(this.frame.style, { width: "100%", height: "520px", border: "0" });
    this.heard = (event) => {
      if (event.source === this.frame.contentWindow && event.data?.vramwise === "height" && event.data.height > 0) {
        this.frame.style.height = `${Math.min(4000, Number(event.data.height) + 8)}px`;
      }
    };
    window.addEventListener("message", this.heard);
    this.replaceChildren(this.frame);
    this.point();
  }

  disconnectedCallback() {
    window.removeEventListener("message", this.heard);
  }

  attributeChangedCallback() {
    this.point();
  }

  point() {
    if (!this.frame) return;
    const page = new URL(this.getAttribute("src") ?? HERE, document.baseURI);
    page.search = "?embed";
    page.hash = this.getAttribute("scenario") ?? "";
    this.frame.src = page.href;
  }
}

customElements.define("vramwise-estimate", VramwiseEstimate);

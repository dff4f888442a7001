// For narrow windows: book.css wraps each line of code with an indent, and lets wide pictures scroll.
addEventListener("load", () => {
  for (const pre of document.querySelectorAll("article .highlight pre")) {
    const printed = !pre.closest(".cell_input, .highlight-python, .highlight-sh, .highlight-bash");
    pre.innerHTML = pre.innerHTML.replace(/\n$/, "").split("\n").map(line => {
      const text = line.replace(/<span class="linenos">.*?<\/span>/, "").replace(/<.*?>/g, "");
      const columns = printed && /\S {2,}\S/.test(text) ? " columns" : "";
      return `<span class="line${columns}" style="--indent: ${text.match(/^ */)[0].length}ch">${line}\n</span>`;
    }).join("");
  }
  for (const image of document.querySelectorAll("article img")) image.classList.toggle("wide", image.naturalWidth > 640);
});

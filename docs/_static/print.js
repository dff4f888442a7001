// What is folded on the page stands open on paper.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(part => { part.open = true; }));

// Open all folded parts before printing.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(part => { part.open = true; }));

"use strict";
// Return the commands of a session, without prompts and output; no text for other code.
const commandsOf = (text) => {
  const lines = [];
  let continues = false;
  for (const line of text.split("\n")) {
    if (!continues && !line.startsWith("$ ")) continue;
    lines.push(continues ? line : line.slice(2));
    continues = line.endsWith("\\");
  }
  return lines.join("\n");
};

// The copy button prefers this attribute to the text of the block.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-clipboard-target]");
  if (!button) return;
  const block = document.querySelector(button.getAttribute("data-clipboard-target"));
  const commands = commandsOf(block.textContent);
  if (commands) button.setAttribute("data-clipboard-text", commands);
}, true);

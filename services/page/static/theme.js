// Runs before the page is drawn, so that a chosen theme never flashes the other one.
(() => {
  const themes = ["auto", "light", "dark"];
  const root = document.documentElement;

  function read() {
    try {
      const stored = localStorage.getItem("prove.theme");
      return themes.includes(stored) ? stored : "auto";
    } catch {
      return "auto"; // storage may be forbidden
    }
  }

  function apply(theme) {
    root.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) {
      button.textContent = theme[0].toUpperCase() + theme.slice(1);
      button.setAttribute("aria-label", `Theme: ${theme}`);
    }
  }

  function next() {
    const theme = themes[(themes.indexOf(root.dataset.theme) + 1) % themes.length];
    try {
      localStorage.setItem("prove.theme", theme);
    } catch {
      // it holds for this visit
    }
    apply(theme);
  }

  apply(read());
  addEventListener("DOMContentLoaded", () => {
    apply(root.dataset.theme);
    document.getElementById("theme").addEventListener("click", next);
  });
})();

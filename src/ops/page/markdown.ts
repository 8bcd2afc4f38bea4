import { type Html, html } from './html.ts'

/** Our own guides are written with code, emphasis and links; of these the page shows code as such, the rest as its words. */
export function markdownText(text: string): Html {
  const words = text
    .replace(/\*\*([^*]+)\*\*/g, '$1')
    .replace(/\[([^\]]+)\]\([^)]+\)/g, '$1')
    .replace(/<(https:[^>]+)>/g, '$1')
  return html`${words.split('`').map((part, index) => (index % 2 === 1 ? html`<code>${part}</code>` : part))}`
}

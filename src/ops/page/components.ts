import { randomUUID } from 'node:crypto'
import type { Status } from '../../sends/lifecycle.ts'
import type { EventStatus } from '../filters.ts'
import { eventLabels, type Label, sendLabels } from '../words.ts'
import type { Problem } from './action.ts'
import { attribute, type Html, html, type Part } from './html.ts'

/** A send's status as a tag: the word, with an icon beside it. */
export const sendTag = (status: Status): Html => tag(status, sendLabels[status])

/** An event's status as a tag. */
export const eventTag = (status: EventStatus): Html => tag(`event-${status}`, eventLabels[status])

function tag(name: string, { word, icon }: Label): Html {
  return html`<span class="tag tag-${name}"><span aria-hidden="true">${icon}</span> ${word}</span>`
}

/** How a change is asked for without the page: the API's call and the command's line, with everything but the token. */
export interface ByApi {
  method: 'GET' | 'POST' | 'DELETE'
  path: string
  body?: unknown
  /** A file that is the body. */
  file?: { name: string; type: string }
  /** The arguments of `oncehook`. */
  cli?: readonly string[]
}

/** A form that changes something. It has an ID that counts once, and says how to do the same by the API. */
export function actionForm(options: {
  action: string
  fields: Part
  /** `personal`: what only a person does on the page, for which there is no API. */
  byApi: ByApi | 'personal'
  className?: string
  id?: string
  /** Of a form that carries a file or long text. */
  encoding?: string
}): Html {
  const { action, fields, byApi, className, id, encoding } = options
  return html`<form action="${action}" method="post"${attribute('class', className)}${attribute('id', id)}${attribute('enctype', encoding)}>
<input type="hidden" name="form" value="${randomUUID()}">${fields}${byApi !== 'personal' && byApiDetails(byApi)}</form>`
}

/** The call and the line, folded. */
export function byApiDetails({ method, path, body, file, cli }: ByApi): Html {
  const call = [
    `curl -sS -X ${method} "$ONCEHOOK_URL${path.replace(/[$`"\\]/g, '\\$&')}"`,
    `-H "Authorization: Bearer $ONCEHOOK_TOKEN"`,
    ...(file === undefined ? [] : [`-H 'Content-Type: ${file.type}' --data-binary @${quoted(file.name)}`]),
    ...(body === undefined ? [] : [`-H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}`]),
  ].join(' \\\n  ')
  return html`<details class="by-api"><summary>Do this by API</summary><pre tabindex="0">${call}</pre>${
    cli && html`<pre tabindex="0">${['oncehook', ...cli].map(quoted).join(' ')}</pre>`
  }</details>`
}

/** One word of a shell's line. */
const quoted = (word: string): string => (/^[\w./:@%=,+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)

/** A button that puts a text on the clipboard; it shows only where scripts run. */
export function copyButton(text: string, label = 'Copy'): Html {
  return html`<button type="button" class="quiet" data-copy="${text}" hidden>${label}</button>`
}

/** What is wrong with a form, above it, each linked to its field. */
export function errorSummary(
  problems: readonly Problem[],
  { scope = '', labels = {} }: { scope?: string; labels?: Readonly<Record<string, string>> } = {},
): Part {
  if (problems.length === 0) return null
  return html`<div class="errors" role="alert" tabindex="-1" id="errors"><h2>There is a problem</h2><ul>${problems.map(
    ({ path, message }) =>
      html`<li><a href="#field-${scope + path}">${labels[path] ?? path.replaceAll('_', ' ')}: ${message}</a></li>`,
  )}</ul></div>`
}

/** A field with its label and, beside it, what is wrong with it. */
export function field(options: {
  name: string
  label: Part
  value?: string | undefined
  type?: string
  required?: boolean
  maxLength?: number
  autocomplete?: string
  hint?: Part
  problems?: readonly Problem[]
  inputMode?: string
  /** Characters wide; as wide as there is room without it. */
  size?: number
  /** Tells fields of the same name on one page apart. */
  scope?: string
  list?: string
}): Html {
  const {
    name,
    label,
    value,
    type = 'text',
    required,
    maxLength,
    autocomplete = 'off',
    hint,
    problems = [],
    inputMode,
    list,
    size,
    scope = '',
  } = options
  const id = scope + name
  const wrong = problems.find(({ path }) => path === name)
  const described = [hint !== undefined && `hint-${id}`, wrong && `error-${id}`].filter(Boolean).join(' ')
  return html`<div class="field"><label for="field-${id}">${label}</label>${hint !== undefined && html`<p class="hint" id="hint-${id}">${hint}</p>`}${
    wrong && html`<p class="error" id="error-${id}">${wrong.message}</p>`
  }<input id="field-${id}" name="${name}" type="${type}" autocomplete="${autocomplete}"${attribute('value', value)}${attribute('required', required)}${attribute('maxlength', maxLength)}${attribute('inputmode', inputMode)}${attribute('size', size)}${attribute('list', list)}${attribute('aria-describedby', described || null)}${attribute('aria-invalid', wrong && 'true')}></div>`
}

/** A list of choices. */
export function select(options: {
  name: string
  label: Part
  choices: readonly (readonly [value: string, text: string])[]
  value?: string | undefined
  /** Tells fields of the same name on one page apart. */
  scope?: string
}): Html {
  const { name, label, choices, value, scope = '' } = options
  return html`<div class="field"><label for="field-${scope + name}">${label}</label><select id="field-${scope + name}" name="${name}">${choices.map(
    ([choice, text]) => html`<option value="${choice}"${attribute('selected', choice === value)}>${text}</option>`,
  )}</select></div>`
}

/** A table with its caption. On narrow screens each row stands in two lines: the cells marked `main`, then the rest. */
export function table(options: {
  caption: Part
  head: readonly (Part | Column)[]
  rows: readonly Html[]
  id?: string
  className?: string
}): Html {
  const { caption, head, rows, id, className } = options
  return html`<div class="scroll" tabindex="0" role="region" aria-label="${caption}"><table${attribute('id', id)}${attribute('class', className)}><caption>${caption}</caption>
<thead><tr>${head.map(headCell)}</tr></thead><tbody>${rows}</tbody></table></div>`
}

/** The head of a column of figures, which stand under each other by their ends. */
interface Column {
  figures: string
}

function headCell(title: Part | Column): Html {
  return typeof title === 'object' && title !== null && 'figures' in title
    ? html`<th scope="col" class="number">${title.figures}</th>`
    : html`<th scope="col">${title}</th>`
}

/** Links to the pages before and after; the address holds the whole filter. */
export function pager(address: string, nextCursor: string | null): Html {
  const at = (cursor: string | null) => {
    const url = new URL(address, 'http://page')
    if (cursor === null) url.searchParams.delete('cursor')
    else url.searchParams.set('cursor', cursor)
    return url.pathname + url.search
  }
  const isFirst = !new URL(address, 'http://page').searchParams.has('cursor')
  return html`<nav class="pager" aria-label="Pages" ${boosted}>${!isFirst && html`<a href="${at(null)}">« Newest</a>`}${
    nextCursor !== null && html`<a href="${at(nextCursor)}" rel="next">Older ›</a>`
  }</nav>`
}

/** On an element whose links and forms swap the main part only, where scripts run. */
export const boosted = html`hx-boost="true" hx-target="#main" hx-select="#main" hx-select-oob="#status,#banners,#review-count" hx-swap="outerHTML show:window:top"`

/** A part of a page that is refreshed in place when something changes; `id` is unique on the page. */
export function live(id: string, content: Part, element: 'div' | 'span' | 'section' = 'div'): Html {
  return element === 'span'
    ? html`<span id="${id}" data-live>${content}</span>`
    : html`<div id="${id}" data-live>${content}</div>`
}

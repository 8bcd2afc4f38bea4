import { Router } from 'express'
import { createProvider, providers } from '../../../providers/registry.ts'
import { findSource, listSources, type Setup, type SourceRow } from '../../source-queries.ts'
import { ageText, countText, shareText } from '../../words.ts'
import { copyButton, live, table } from '../components.ts'
import { type Html, html, type Part } from '../html.ts'
import { markdownText } from '../markdown.ts'
import { missingPage, screen } from '../page.ts'
import type { ScreenDeps } from '../routes.ts'
import type { Visit } from '../visit.ts'

/** The sources: what each has answered, why it refused, and how to set it up. */
export function sourcesScreen(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const setup = (): Setup => ({
    config: deps.config(),
    fingerprints: deps.fingerprints,
    publicUrl: deps.publicUrl,
    now: deps.now(),
  })

  router.get(
    '/ops/sources',
    screen(deps, async (visit) => {
      const { sources } = await listSources(deps.reads, setup())
      const list = table({
        caption: 'Requests of the last 24 hours, and the secrets that verified them',
        head: [
          'Source',
          'Last verified',
          { figures: 'Verified' },
          'Refused',
          { figures: 'Redeliveries' },
          { figures: 'Conflicts' },
          { figures: 'Quarantined' },
          'Secrets (last match)',
          html`<span class="hidden">Next</span>`,
        ],
        rows: sources.map((source) => rowOf(source, visit)),
        className: 'stack of-sources',
      })
      return { title: 'Sources', place: 'sources', main: html`<h1>Sources</h1>${live('sources', list)}` }
    }),
  )

  router.get(
    '/ops/sources/:name',
    screen(deps, async (visit, req) => {
      const source = await findSource(deps.reads, setup(), String(req.params.name))
      if (!source) return missingPage('No such source', html`<a href="/ops/sources">Sources</a>`)
      return { title: `Source ${source.name}`, place: 'sources', main: pageOf(source, visit, deps) }
    }),
  )
  return router
}

function rowOf(source: SourceRow, { view }: Visit): Html {
  const { name, title, is_configured, last_verified_at, last_24_hours: counts, refused, secrets } = source
  const verified = counts.accepted + counts.duplicate + counts.quarantined
  const [most] = refused
  return html`<tr><td class="first"><a href="/ops/sources/${encodeURIComponent(name)}">${name}</a> <span class="muted">${title ?? ''}${!is_configured && ' not configured any more'}</span></td>
<td data-label="Last verified">${last_verified_at === null ? 'never' : view.time(last_verified_at)}</td><td class="number" data-label="Verified">${countText(verified)}</td>
<td data-label="Refused">${counts.refused === 0 ? '0' : shareText(counts.refused, verified + counts.refused)}${most && html` <span class="muted">mostly: ${most.explanation}</span>`}</td>
<td class="number" data-label="Redeliveries">${shareText(counts.duplicate, verified)}</td><td class="number" data-label="Conflicts">${conflictsLink(source)}</td><td class="number" data-label="Quarantined">${counts.quarantined === 0 ? '0' : html`<a href="/ops/events?source=${encodeURIComponent(name)}&amp;status=quarantined">${countText(counts.quarantined)}</a>`}</td>
<td data-label="Secrets">${secrets
    .filter(({ is_configured }) => is_configured)
    .map(
      ({ position, last_verified_at, advice }) =>
        html`<div>secret ${position ?? '–'}, ${last_verified_at === null ? 'never matched' : `matched ${ageText(last_verified_at, view.now)} ago`}${advice !== 'never used' && html`, <span class="muted">${advice}</span>`}</div>`,
    )}</td><td class="next">${last_verified_at === null && is_configured && html`<a href="/ops/sources/${encodeURIComponent(name)}#set-up">Set up</a>`}</td></tr>`
}

const conflictsLink = ({ name, conflicts }: SourceRow): Part =>
  conflicts === 0
    ? '0'
    : html`<a href="/ops/events?source=${encodeURIComponent(name)}&amp;has=conflict">${countText(conflicts)}</a>`

function pageOf(source: SourceRow, visit: Visit, deps: ScreenDeps): Html {
  const { name, title, refused, mode, is_configured } = source
  return html`<div class="title"><h1>${name}</h1><p>${title ?? 'not configured any more'}${mode && ` · ${mode} mode`}</p></div>
<p>${live('arrived', arrivedText(source, visit), 'span')} <a href="/ops/events?source=${encodeURIComponent(name)}">Events of ${name}</a> · ${source.conflicts === 0 ? 'no conflicts in 24 h' : html`conflicts in 24 h: ${conflictsLink(source)}`}</p>
${source.warnings.map((warning) => html`<p class="banner ask">${warning}</p>`)}
${secretsOf(source, visit)}
<h2 id="refused">Refused in the last 24 hours</h2>${
    refused.length === 0
      ? html`<p>None.</p>`
      : html`<p>Of a request that wasn't verified nothing is stored, so there are counts only.</p>${table({
          caption: 'By cause',
          head: ['Cause', { figures: 'Count' }, 'Last'],
          rows: refused.map(
            ({ cause, explanation, count, last_at }) =>
              html`<tr><td>${explanation} <span class="muted mono">${cause}</span></td><td class="number">${countText(count)}</td><td>${visit.view.time(last_at)}</td></tr>`,
          ),
        })}`
  }${is_configured && setUpOf(source, deps)}`
}

const arrivedText = ({ last_verified_at }: SourceRow, { view }: Visit): Part =>
  last_verified_at === null
    ? 'Waiting for the first verified event…'
    : html`✓ Verified requests arrive, the last one ${view.time(last_verified_at)}.`

function secretsOf({ secrets }: SourceRow, { view }: Visit): Part {
  if (secrets.length === 0) return html`<p>It has no secret.</p>`
  return table({
    caption: 'Secrets, by fingerprint; their values are shown nowhere',
    head: ['Place', 'Fingerprint', { figures: 'Verified' }, 'First', 'Last', 'Advice'],
    rows: secrets.map(
      ({ position, fingerprint, verified, first_verified_at, last_verified_at, advice }) =>
        html`<tr><td>${position ?? 'not configured'}</td><td class="mono">${fingerprint}</td><td class="number">${countText(verified)}</td>
<td>${view.time(first_verified_at)}</td><td>${view.time(last_verified_at)}</td><td>${advice}</td></tr>`,
    ),
  })
}

function setUpOf(row: SourceRow, { config, publicUrl }: ScreenDeps): Part {
  const source = config().sources.get(row.name)
  const definition = source && providers.get(source.provider.name)
  if (!source || !definition) return null
  const { guide, sample } = definition
  const wanted = [
    ...new Set(
      config()
        .rules.filter((rule) => rule.source === row.name)
        .flatMap(({ types }) => [...types]),
    ),
  ]
  const [type = Object.values(sample.types)[0]] = wanted
  return html`<h2 id="set-up">Set up at ${definition.title}</h2>
<ol><li>The address to paste: <code>${row.url}</code> ${copyButton(row.url)}${addressWarnings(publicUrl, definition.urlOption !== undefined)}</li>
<li>${markdownText(guide.setUp)}</li>
<li>${wanted.length > 0 ? html`Event types that the rules want: ${wanted.map((each) => html`<code>${each}</code> `)}` : 'No rule wants its events; they are kept all the same.'}</li>
<li>The secret: ${markdownText(guide.secret)} It is read from the environment by the configuration (in the sample <code>${row.name.toUpperCase().replace(/[^A-Z0-9]/g, '_')}_WEBHOOK_SECRETS</code>), or from a file, and never shown.</li>
<li>Try it: <code>npx oncehook trigger ${row.name} ${type ?? 'TYPE'}</code></li></ol>
<dl class="facts"><dt>ID and type</dt><dd>${markdownText(guide.identity)}</dd><dt>Not signed</dt><dd>${markdownText(guide.unsigned)}</dd><dt>Redelivery</dt><dd>${markdownText(guide.retries)}</dd>
<dt>Traps</dt><dd><ul>${guide.traps.map((trap) => html`<li>${markdownText(trap)}</li>`)}</ul></dd>
<dt>Documentation</dt><dd><a href="${createProvider(source.provider.name, source.options).documentation}" rel="noreferrer">${createProvider(source.provider.name, source.options).documentation}</a></dd></dl>`
}

function addressWarnings(publicUrl: string | undefined, signsAddress: boolean): Part {
  const warnings = [
    publicUrl === undefined && 'PUBLIC_URL is not set, so the address lacks its beginning.',
    publicUrl?.startsWith('http:') && 'PUBLIC_URL is http: providers post to https only.',
    signsAddress &&
      publicUrl?.endsWith('/') &&
      'This provider signs the address: it has to be the same to the last character, without a slash at the end.',
  ]
  return warnings.filter((warning) => warning).map((warning) => html`<p class="error">${warning || ''}</p>`)
}

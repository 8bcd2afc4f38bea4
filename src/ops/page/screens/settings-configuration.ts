import { Router } from 'express'
import { listSources, type SourceRow } from '../../source-queries.ts'
import { table } from '../components.ts'
import { type Html, html } from '../html.ts'
import { screen } from '../page.ts'
import type { ScreenDeps } from '../routes.ts'
import { settingsPage } from '../settings-frame.ts'
import type { Visit } from '../visit.ts'

const HERE = '/ops/settings/configuration'

/** What the service works with at this moment; secrets by their fingerprints only. */
export function settingsConfigurationScreen(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  router.get(
    HERE,
    screen(deps, async (visit) => {
      const config = deps.config()
      const setup = { config, fingerprints: deps.fingerprints, publicUrl: deps.publicUrl, now: deps.now() }
      const { sources } = await listSources(deps.reads, setup)
      const configured = sources.filter(({ is_configured }) => is_configured)
      const { warnings, rules, account, hidePersonalData, secondPerson, limits } = config
      const main = html`<p>Of this process, as its file and environment say since the last start or reload. It is changed there, not here.</p>
<dl class="facts"><dt>Version</dt><dd>${deps.version}</dd><dt>PUBLIC_URL</dt><dd>${deps.publicUrl ?? 'not set'}</dd>
<dt>Email account</dt><dd>${account}</dd><dt>Calls a minute</dt><dd>${deps.sendsPerMinute ?? '–'}</dd>
<dt>Personal data</dt><dd>${hidePersonalData ? 'masked for readers' : 'shown to readers'}</dd>
<dt>A resend takes</dt><dd>${secondPerson ? 'two people' : 'one person'}</dd>
${Object.entries(limits).map(([name, value]) => html`<dt>limits.${name}</dt><dd>${String(value)}</dd>`)}</dl>
${warnings.length > 0 && html`<h2>Warnings</h2><ul>${warnings.map((warning) => html`<li>${warning}</li>`)}</ul>`}
<h2>Sources</h2>${sourcesOf(configured, visit)}<h2>Rules</h2>${
        rules.length === 0
          ? html`<p>None: no event causes an email.</p>`
          : table({
              caption: 'Which event causes which email, in the order of the file',
              head: ['Rule', 'Source', 'Types'],
              rows: rules.map(
                ({ name, source, types }) =>
                  html`<tr><td class="first">${name}</td><td>${source}</td><td class="mono">${[...types].join(', ')}</td></tr>`,
              ),
              className: 'stack',
            })
      }`
      return settingsPage(HERE, main)
    }),
  )
  return router
}

function sourcesOf(sources: readonly SourceRow[], { view }: Visit): Html {
  const secretsOf = (source: SourceRow) =>
    source.secrets
      .filter(({ is_configured }) => is_configured)
      .map(
        ({ position, fingerprint, last_verified_at, advice }) =>
          html`<div>${position ?? ''} <code>${fingerprint}</code> ${last_verified_at === null ? 'never matched' : html`matched ${view.time(last_verified_at)}`} <span class="muted">${advice}</span></div>`,
      )
  return table({
    caption: 'Sources; of a secret only its fingerprint, made with a key of this database',
    head: ['Source', 'Provider', 'Mode', 'Address', 'Secrets'],
    rows: sources.map(
      (source) =>
        html`<tr><td class="first"><a href="/ops/sources/${encodeURIComponent(source.name)}">${source.name}</a></td><td>${source.title ?? source.provider}</td><td>${source.mode}</td><td class="mono">${source.url}</td><td>${secretsOf(source)}</td></tr>`,
    ),
    className: 'stack',
  })
}

import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { inspect } from 'node:util'
import { env } from '../src/config.ts'
import type { Provider, ProviderDefinition } from '../src/providers/provider.ts'
import { createProvider, providers } from '../src/providers/registry.ts'
import type { SignatureKind, SignatureScheme } from '../src/providers/signature.ts'

// Writes what stands below the marker of docs/providers.md: `npm run docs`. Above it the page is written by hand.

const PAGE = 'docs/providers.md'
const MARKER = '<!-- From here on the page is made by `npm run docs` of what the code says. -->\n'
const WIDTH = 130

/** The page of all providers: its written head as it is, and the rest made of the definitions. */
export function providerDocs(page: string): string {
  const [head = '', rest] = page.split(MARKER)
  if (rest === undefined) throw new Error(`${PAGE} has lost the line ${MARKER.trim()}`)
  return `${head}${MARKER}\n${[overview(), ...[...providers.values()].map(section)].join('\n')}`
}

/** The options that a piece of a sample configuration gives. */
export function optionsOf(code = ''): Record<string, unknown> {
  // Code of our own definitions, run with the only name that it may use.
  return new Function('env', `return ({${code}})`)(env)
}

/** Options as they stand in a configuration. */
export function codeOf(options: Readonly<Record<string, unknown>>): string {
  return Object.entries(options)
    .map(([name, value]) => `${name}: ${inspect(value)}`)
    .join(', ')
}

/** The line of a configuration that sets a provider up, under a name of its own. */
export function sourceLine(definition: ProviderDefinition, options = definition.guide.options): string {
  const { name } = definition
  const source = /^[a-z0-9]+$/.test(name) ? name : `'${name}'`
  const provider = createProvider(name, optionsOf(options))
  const secrets = `secrets: env.list('${name.toUpperCase().replaceAll('-', '_')}_WEBHOOK_SECRETS')`
  const parts = [
    `provider: '${name}'`,
    ...(provider.secrets === 'none' ? [] : [secrets]),
    ...(options ?? '').split(/,?\n/).map((line) => line.replace(/^ {2}/, '').replace(/,$/, '')),
    ...(provider.requiresConfirm ? ['confirm: fetchIt'] : []),
  ].filter((part) => part.trim() !== '')
  const line = `${source}: { ${parts.join(', ')} },`
  return line.length <= 120 && !options?.includes('\n') ? line : `${source}: {\n${parts.map((part) => `  ${part},\n`).join('')}},`
}

function overview(): string {
  const rows = [...providers.values()].map((definition) => {
    const provider = createProvider(definition.name, optionsOf(definition.guide.options))
    return row(
      `[${definition.title}](#${definition.name})`,
      tick(definition.name),
      placeOf(provider.scheme),
      algorithmsOf(provider.scheme),
      idOf(provider),
      [provider, ...(definition.guide.variants ?? []).map(({ options }) => createProvider(definition.name, options))]
        .map(signedPart)
        .filter((part, index, all) => all.indexOf(part) === index)
        .join('; in its variant '),
    )
  })
  const once = [...providers.values()].filter(({ guide }) => guide.deliversOnce).map(({ name }) => tick(name))
  return `| Provider | Name | Signature | Algorithm | Event ID | Signed |
|---|---|---|---|---|---|
${rows.join('')}
${wrap(`Never by itself delivers again: ${once.join(', ')}. After an outage have what was missed delivered by hand.`)}
`
}

function section(definition: ProviderDefinition): string {
  const { name, guide, sample } = definition
  const facts = factsOf(createProvider(name, optionsOf(guide.options)))
  const variants = (guide.variants ?? []).map((variant) => {
    const other = factsOf(createProvider(name, variant.options))
    const changed = Object.entries(other).filter(([fact, value]) => facts[fact] !== value)
    const table = changed.length > 0 ? `\n${tableOf(Object.fromEntries(changed))}` : ''
    return `**Variant: ${variant.title}**\n\n${code(sourceLine(definition, codeOf(variant.options)))}${table}\n`
  })
  const types = Object.entries(sample.types).map(([fact, type]) => `${tick(type)} (${fact})`)
  const items = [
    ['Secret', guide.secret],
    ['ID and type', guide.identity],
    ['Redelivery', guide.retries],
    ['Samples', types.length > 0 && `\`npx oncehook trigger ${name} TYPE\` with ${types.join(', ')}.`],
    ['Example', existsSync(`examples/${name}.ts`) && `[examples/${name}.ts](../examples/${name}.ts)`],
  ].filter(([, text]) => text)
  return `## ${name}

${tableOf(facts)}
${wrap(`**Not protected by the signature:** ${guide.unsigned}`, '> ')}

${wrap(`**There:** ${guide.setUp} **Here:**`)}

${code(sourceLine(definition))}
${variants.join('')}${items.map(([label, text]) => `${wrap(`**${label}:** ${text}`, '- ', '  ')}\n`).join('')}- **Traps:**
${guide.traps.map((trap) => `${wrap(trap, '  - ', '    ')}\n`).join('')}`
}

/** What the code says of a provider. */
function factsOf(provider: Provider): Record<string, string> {
  const { scheme, factHeaders, remoteKeys } = provider
  return {
    Signature: placeOf(scheme),
    Algorithm: algorithmsOf(scheme),
    Signed:
      'isUnsigned' in scheme ? 'nothing' : 'proofs' in scheme ? scheme.signed : scheme.signed ? tick(scheme.signed) : 'nothing',
    'Signed time': timeOf(provider),
    'Event ID': idOf(provider),
    Content: provider.contentIsSigned ? 'signed' : '**not signed**',
    ...(remoteKeys && { Keys: 'fetched from the provider when a request first names one' }),
    ...(provider.answer && { Answer: 'the text that the provider asks for' }),
    ...(provider.challenge && { 'Check by GET': 'answered' }),
    'Body limit': `${provider.maxBodyBytes.toLocaleString('en-US')} bytes`,
    'Headers stored': factHeaders?.map(tick).join(', ') || 'none',
    Documentation: `<${provider.documentation}>`,
  }
}

function placeOf(scheme: SignatureScheme): string {
  if ('isUnsigned' in scheme) return 'none'
  if ('proofs' in scheme) return scheme.place
  return [...new Set(scheme.signatures.map(({ header }) => headersOf(header)))].join('; ')
}

function algorithmsOf(scheme: SignatureScheme): string {
  if ('isUnsigned' in scheme) return 'none'
  return [...new Set(scheme.signatures.map(algorithmOf))].join('; or ')
}

function algorithmOf(kind: SignatureKind): string {
  if (kind.kind === 'hmac') return `HMAC-${kind.algorithm.toUpperCase()}, ${kind.encoding}`
  if (kind.kind === 'rsa') return `RSA with ${kind.algorithm.toUpperCase().replace('SHA', 'SHA-')}, ${kind.encoding}`
  if (kind.kind === 'ecdsa') return `ECDSA P-256 with SHA-256, ${kind.encoding}`
  if (kind.kind === 'ed25519') return `ed25519, ${kind.encoding}`
  return kind.encoding === 'basic' ? 'none: HTTP Basic' : 'none: the secret itself'
}

function timeOf({ scheme, toleranceSeconds }: Provider): string {
  if ('isUnsigned' in scheme || !scheme.timestamp) return 'none'
  const place = typeof scheme.timestamp === 'string' ? scheme.timestamp : headersOf(scheme.timestamp.header)
  const unit = typeof scheme.timestamp === 'object' && scheme.timestamp.unit === 'milliseconds' ? ', in milliseconds' : ''
  if (toleranceSeconds === Number.POSITIVE_INFINITY)
    return `${place}${unit}; the provider names no limit, \`toleranceSeconds\` can set one`
  return `${place}${unit}, at most ${toleranceSeconds.toLocaleString('en-US')} s in the past or the future`
}

function idOf({ idBasis, idIsSigned, contentIsSigned, hashWithoutId }: Provider): string {
  const made = {
    provider: 'the provider’s own',
    'message_id+type': 'made of `message_id` and the type',
    derived: 'made of fields',
    body_hash: 'the hash of the body',
    delivery: 'one for each delivery',
  }[idBasis]
  const isHashedWithout = hashWithoutId && idBasis !== 'body_hash'
  const signed = idIsSigned && contentIsSigned ? 'signed' : '**not signed**'
  return [
    idBasis === 'delivery' ? made : `${made}, ${signed}`,
    ...(isHashedWithout ? ['without it the hash of the body'] : []),
  ].join('; ')
}

function signedPart({ scheme, idIsSigned, contentIsSigned }: Provider): string {
  if (!contentIsSigned) return '**nothing of the event**'
  if ('proofs' in scheme) return 'what its section says'
  return idIsSigned ? 'the body' : 'the body, **not the ID**'
}

const tick = (text: string) => `\`${text}\``
const code = (text: string) => `\`\`\`ts\n${text}\n\`\`\`\n`
const headersOf = (names: string | readonly string[]) => [names].flat().map(tick).join(' or ')
const row = (...cells: string[]) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |\n`
const tableOf = (facts: Record<string, string>) =>
  `| Fact | Value |\n|---|---|\n${Object.entries(facts)
    .map((fact) => row(...fact))
    .join('')}`

/** Breaks a paragraph into lines, never inside code, nor where the next line would look like a list. */
function wrap(text: string, first = '', rest = first): string {
  const words = text
    .replace(/`[^`]*`/g, (span) => span.replaceAll(' ', '\0'))
    .replace(/ (?=(?:[-+*]|#+|\d+[.)]) )/g, '\0')
    .split(' ')
  const lines = ['']
  for (const word of words) {
    const line = lines.at(-1) ?? ''
    if (line !== '' && rest.length + line.length + 1 + word.length > WIDTH) lines.push(word)
    else lines[lines.length - 1] = line === '' ? word : `${line} ${word}`
  }
  return lines.map((line, index) => `${index === 0 ? first : rest}${line.replaceAll('\0', ' ')}`).join('\n')
}

if (import.meta.main) writeFileSync(PAGE, providerDocs(readFileSync(PAGE, 'utf8')))

import type { HeaderValues } from './provider.ts'

const MOST_ADDRESSES = 60

/**
 * Other forms of the address that a provider signs, the nearest first: as the request shows it, through a proxy or not, and with
 * what is easily written otherwise. `words` says how it differs from the configured one.
 */
export function addressForms(
  configured: string,
  seen: { headers: HeaderValues; path: string; query: string | undefined },
): { url: string; words: string }[] {
  const parts = /^(https?):\/\/([^/?#]+)([^?#]*)(?:\?([^#]*))?/i.exec(configured)
  if (!parts) return []
  const [, scheme = '', host = '', path = '', query] = parts
  const otherScheme = scheme.toLowerCase() === 'https' ? 'http' : 'https'
  const withoutPort = (name: string) => name.replace(/:\d+$/, '')
  const seenHosts = ['x-forwarded-host', 'host'].flatMap((name) => seen.headers[name]?.[0]?.split(',')[0]?.trim() || [])
  const toggled = (text: string) => (text.endsWith('/') ? text.slice(0, -1) : `${text}/`)
  const slash = (text: string) => (text.endsWith('/') ? 'without the slash at its end' : 'with a slash at its end')
  const choices: (readonly [string, string])[][] = [
    [
      [`${scheme}://`, ''],
      [`${otherScheme}://`, `with ${otherScheme} instead of ${scheme.toLowerCase()}`],
    ],
    [
      [host, ''],
      [withoutPort(host), 'without the port'],
      ...['443', '80'].map((port) => [`${withoutPort(host)}:${port}`, `with the port ${port}`] as const),
      ...seenHosts.map((name) => [name, 'with the host that the request names'] as const),
      ...seenHosts.map((name) => [withoutPort(name), 'with the host that the request names, without its port'] as const),
    ],
    [
      [path, ''],
      [toggled(path), slash(path)],
      [seen.path, 'with the path that the request has'],
      [toggled(seen.path), `with the path that the request has, ${slash(seen.path)}`],
    ],
    [
      [query === undefined ? '' : `?${query}`, ''],
      [seen.query ? `?${seen.query}` : '', 'with the query that the request has'],
      ['', 'without the query'],
    ],
  ]
  const forms = choices.reduce(
    (before, next) =>
      before.flatMap((form) => next.map(([text, words]) => ({ text: form.text + text, words: [...form.words, words] }))),
    [{ text: '', words: [] as string[] }],
  )
  const known = new Set([configured])
  return forms
    .map(({ text, words }) => ({ url: text, words: words.filter(Boolean) }))
    .sort((a, b) => a.words.length - b.words.length)
    .filter(({ url }) => !known.has(url) && known.add(url))
    .slice(0, MOST_ADDRESSES)
    .map(({ url, words }) => ({ url, words: words.join(', ') }))
}

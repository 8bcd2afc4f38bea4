import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { brotliCompressSync, constants, gzipSync } from 'node:zlib'
import { Router } from 'express'

const require = createRequire(import.meta.url)
const own = (name: string) => new URL(`assets/${name}`, import.meta.url)

const files = {
  'page.css': own('page.css'),
  'page.js': own('page.js'),
  'charts.js': own('charts.js'),
  'htmx.js': require.resolve('htmx.org/dist/htmx.min.js'),
  'uplot.js': require.resolve('uplot/dist/uPlot.iife.min.js'),
  'uplot.css': require.resolve('uplot/dist/uPlot.min.css'),
} as const
export type AssetName = keyof typeof files

const types = { css: 'text/css; charset=utf-8', js: 'text/javascript; charset=utf-8' } as const

/** The files that pages load, from our own origin; a name holds the hash of its content, so it may be kept for ever. */
export function createAssets(): { router: Router; pathOf(name: AssetName): string } {
  const assets = Object.entries(files).map(([name, file]) => {
    const content = readFileSync(file)
    const [stem, extension = ''] = name.split('.')
    return {
      name,
      path: `/ops/assets/${stem}.${createHash('sha256').update(content).digest('hex').slice(0, 12)}.${extension}`,
      type: types[extension as keyof typeof types],
      content,
      gzip: gzipSync(content),
      br: brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: content.length } }),
    }
  })
  const paths = new Map(assets.map(({ name, path }) => [name, path]))
  const router = Router({ caseSensitive: true, strict: true })
  for (const { path, type, content, gzip, br } of assets) {
    router.get(path, (req, res) => {
      const encoding = req.acceptsEncodings('br', 'gzip', 'identity')
      res.set({ 'Cache-Control': 'public, max-age=31536000, immutable', 'Content-Type': type, Vary: 'Accept-Encoding' })
      if (encoding === 'br' || encoding === 'gzip') res.set('Content-Encoding', encoding)
      res.end(encoding === 'br' ? br : encoding === 'gzip' ? gzip : content)
    })
  }
  return { router, pathOf: (name) => paths.get(name) ?? '' }
}

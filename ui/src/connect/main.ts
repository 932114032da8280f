import '../app.css';

import { open } from '../lib/open';
import Connect from './Connect.svelte';

open(Connect);
